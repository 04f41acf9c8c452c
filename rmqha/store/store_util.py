"""Facts about the machine.

Java: org.apache.rocketmq.store.StoreUtil (4.9.8)
"""
import os


def get_total_physical_memory_size() -> int:
    """Bytes of physical memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


TOTAL_PHYSICAL_MEMORY_SIZE = get_total_physical_memory_size()
