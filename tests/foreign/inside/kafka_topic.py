"""Print the first events of the topic "orders": ``kafka_topic.py NUMBER``, with the cluster in ``KAFKA``."""

import json
import os
import sys

from confluent_kafka import Consumer

consumer = Consumer({"bootstrap.servers": os.environ["KAFKA"], "group.id": "test", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
for message in consumer.consume(int(sys.argv[1]), timeout=60):
    print(json.dumps([message.key().decode(), json.loads(message.value()), message.headers()[0][1].decode()]))
consumer.close()
