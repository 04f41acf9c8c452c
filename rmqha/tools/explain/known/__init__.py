"""The tables of `rmqha explain`, one module per part of the system. They hold texts only; `catalog` searches them."""
