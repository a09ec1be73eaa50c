"""Consume, transform, produce without Spark: read, write and acknowledge in one transaction.

Fill the topic ``orders`` first (``examples/file_to_topic.py``), then run
``python examples/consume_transform_produce.py``.
"""

import json

from eos import PulsarClient

with (
    PulsarClient("pulsar://localhost:6650") as client,
    client.consumer("orders", "billing") as orders,
    client.producer("invoices", create=True) as invoices,
):
    while messages := orders.receive_batch(1000, timeout_s=5):
        with client.transaction(timeout_s=60) as txn:
            for message in messages:
                order = json.loads(message.value)
                invoice = {"order": order["id"], "total": round(order["amount"] * 1.2, 2)}
                invoices.send(json.dumps(invoice).encode(), key=order["customer"], txn=txn)
            # If the program is killed, its open transaction is aborted: no invoice of it becomes
            # readable, and its orders are delivered again.
            orders.acknowledge(messages, txn=txn)
        print(f"{len(messages)} orders invoiced")
