"""A stream in a separate process, for tests that kill it: each batch replaces OUT/batch=<its number>.

    python -m tests.pipeline.stream_process STORE OUT CHECKPOINT [--to-end]
"""
import sys

from rmqha.pipeline.session import spark_session
from tests.pipeline.support import run_to_end


def main(store: str, out: str, checkpoint: str, *more: str) -> None:
    """Run until killed, or to the end of the available messages."""
    spark = spark_session("local[2]", "killed", **{"spark.ui.enabled": "false", "spark.driver.memory": "512m"})
    spark.sparkContext.setLogLevel("OFF")

    def take(frame, number: int) -> None:
        print(f"taking {number}", flush=True)
        frame.select("keys", "physicalOffset").write.mode("overwrite").parquet(f"{out}/batch={number}")
        print(f"taken {number}", flush=True)
    stream = (spark.readStream.format("rocketmq-commitlog").option("startingOffsets", "earliest")
              .option("maxOffsetsPerTrigger", "50").load(store))
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    run_to_end((writer.trigger(availableNow=True) if "--to-end" in more else writer).start)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
