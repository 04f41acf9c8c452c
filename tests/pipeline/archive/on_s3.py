"""An archive on an S3 server, in a separate session with hadoop-aws, which prints the results of the jobs as JSON.

    python -m tests.pipeline.archive.on_s3 STORE OUT

STORE has 90 messages, of which the first run archives 50.
"""
import json
import os
import shutil
import sys
from collections import Counter

import boto3
from moto.server import ThreadedMotoServer

from rmqha.pipeline.archive.archive import archive
from rmqha.pipeline.archive.archive_files import archive_files
from rmqha.pipeline.archive.archive_table import Chosen, archived_messages
from rmqha.pipeline.archive.restore import restore, verify
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.session import spark_session
from tests.pipeline.support import put
from tests.support.spark_cluster import jars

BUCKET, TARGET = "archives", "s3a://archives/broker-a"


def session(port: int):
    """Return a session that is configured for the server."""
    s3a = {"endpoint": f"http://127.0.0.1:{port}", "access.key": "key", "secret.key": "secret",
           "path.style.access": "true", "endpoint.region": "us-east-1"}
    return spark_session("local[2]", **{
        "spark.jars": ",".join(map(str, jars())), "spark.ui.enabled": "false", "spark.driver.memory": "768m",
        "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}})


def main(store: str, out: str) -> None:
    """Archive in two runs, verify, restore."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id="key",
                          aws_secret_access_key="secret", region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    spark = session(port)
    spark.sparkContext.setLogLevel("OFF")
    found = {}
    first = f"{out}/first"
    put(first, 0, 50)
    found["first"] = archive(spark, first, TARGET).rows
    shutil.rmtree(store)
    shutil.move(first, store)
    put(store, 50, 40)
    found["second"] = archive(spark, store, TARGET).rows
    verified = verify(spark, TARGET)
    found["verified"] = verified.messages, verified.problems
    found["restored"] = restore(spark, TARGET, f"{out}/out").rows
    found["one"] = archived_messages(spark, TARGET, Chosen(["%T1"]), ["keys"]).count()
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    names = [each["Key"].split("/") for page in pages for each in page.get("Contents", ())]
    found["keys"] = Counter(parts[1] for parts in names if parts[-1].endswith((".json", ".parquet")))
    files = archive_files(spark, TARGET)
    files.write("_lock/x.json", json.dumps({"host": "elsewhere", "pid": 1, "started": 1.0}))
    try:
        archive(spark, store, TARGET)
    except PipelineError as error:
        found["locked"] = str(error)
    spark.stop()
    print(json.dumps(found), flush=True)
    os._exit(0)  # the server's thread never ends


if __name__ == "__main__":
    main(*sys.argv[1:])
