"""Programs that run in another environment than this one."""

from __future__ import annotations

# FastStream reads from one topic and publishes each value to the next.
FASTSTREAM = """
import asyncio, sys
from faststream import FastStream
from faststream.kafka import KafkaBroker

address, count = sys.argv[1], int(sys.argv[2])
broker = KafkaBroker(address)
app = FastStream(broker)
found = []

@broker.subscriber("fast-in", group_id="fast", auto_offset_reset="earliest")
@broker.publisher("fast-out")
async def copy(value: int) -> int:
    return value * 2

@broker.subscriber("fast-out", group_id="fast-end", auto_offset_reset="earliest")
async def end(value: int) -> None:
    found.append(value)
    if len(found) == count:
        app.exit()

@app.after_startup
async def begin() -> None:
    for number in range(count):
        await broker.publish(number, "fast-in")

asyncio.run(asyncio.wait_for(app.run(), 60))
assert found == [2 * number for number in range(count)], found
"""

# In a program of its own, because importing kafka-python warns about deprecated functions.
KAFKA_PYTHON = """
import sys
import kafka

address, count = sys.argv[1], int(sys.argv[2])
producer = kafka.KafkaProducer(bootstrap_servers=address, acks="all")
for number in range(count):
    producer.send("kafka-python", b"%d" % number)
producer.flush()
consumer = kafka.KafkaConsumer(
    "kafka-python", bootstrap_servers=address, group_id="kafka-python",
    auto_offset_reset="earliest", consumer_timeout_ms=10_000,
)
found = []
for each in consumer:
    found.append(int(each.value))
    if len(found) == count:
        break
consumer.commit()
assert found == list(range(count)), len(found)
"""

SPARK = """
import sys
from pyspark.sql import SparkSession

address, jars, where, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", jars)
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
kafka = {"kafka.bootstrap.servers": address}

text = "cast(id as string) as "

rows = spark.range(count).selectExpr(text + "key", text + "value")

rows.write.format("kafka").options(**kafka, topic="spark-in").save()

read = spark.read.format("kafka").options(**kafka, subscribe="spark-in").load()
assert sorted(int(each.value) for each in read.select("value").collect()) == list(range(count))

for _ in range(2):
    query = (
        spark.readStream.format("kafka")
        .options(**kafka, subscribe="spark-in", startingOffsets="earliest").load()
        .writeStream.format("kafka").options(**kafka, topic="spark-out")
        .option("checkpointLocation", where).trigger(availableNow=True).start()
    )
    query.awaitTermination()

written = spark.read.format("kafka").options(**kafka, subscribe="spark-out").load()

assert sorted(int(each.value) for each in written.select("value").collect()) == list(range(count))
spark.stop()
"""
