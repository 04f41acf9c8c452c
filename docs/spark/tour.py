"""Read a store as tables, archive it as Parquet, and restore its commit log. Any store of RocketMQ 4.9 or rmqha works,
such as the quickstart's:

    bin/quickstart --keep                                                (prints the folder that it keeps)
    .venv/bin/python docs/spark/tour.py FOLDER/store/broker-a /tmp/tour  (/tmp/tour must be empty or new)
"""
import filecmp
import sys
from pathlib import Path

from pyspark.sql import functions as f

from rmqha.pipeline.archive.archive import archive
from rmqha.pipeline.archive.restore import restore
from rmqha.pipeline.session import spark_session


def main(store: str, work: str) -> None:
    """Run the four steps of the tour."""
    spark = spark_session("local[2]")
    spark.sparkContext.setLogLevel("ERROR")

    print("1. The commit log as a table")
    messages = spark.read.format("rocketmq-commitlog").load(store)
    messages.groupBy("topic", "queueId").agg(f.count("*"), f.max("queueOffset")).orderBy("topic", "queueId").show()
    messages.select("topic", "keys", "tags", "storeTimestamp", f.length("body")).show(5, truncate=False)
    print(f"records with a wrong CRC: {messages.where('not crcOk').count()}")

    print("2. The same with the columns of Spark's Kafka connector")
    spark.read.format("rocketmq-commitlog").option("schema", "kafka").load(store).printSchema()

    print("3. An archive: Parquet by day")
    done = archive(spark, store, f"{work}/archive")
    print(f"{done.rows} messages: {done.logBytes} bytes of log, {done.archiveBytes} bytes of Parquet")
    spark.read.parquet(f"{work}/archive").groupBy("topic", "day").count().show()

    print("4. The commit log again")
    back = restore(spark, f"{work}/archive", f"{work}/restored")
    equal = [filecmp.cmp(Path(work, "restored", "commitlog", name), Path(store, "commitlog", name), shallow=False)
             for name in back.files]
    print(f"{back.files} {'are byte for byte as they were' if all(equal) else 'DIFFER: is a broker writing there?'}")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
