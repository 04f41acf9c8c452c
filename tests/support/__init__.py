"""What tests share: waiting, fixtures of whole clusters, the real RocketMQ."""
