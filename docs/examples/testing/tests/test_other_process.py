"""A client in another process, like a client in another language."""
import subprocess
import sys

from shop import Billing


def test_order_comes_from_another_process(rocketmq_proc, eventually):
    subprocess.run([sys.executable, "shop.py", "ada", "o-1", "100"], env=rocketmq_proc.env, check=True)
    with Billing(rocketmq_proc.namesrv_addr) as billing:
        eventually(lambda: billing.charged == {"o-1": 100})
