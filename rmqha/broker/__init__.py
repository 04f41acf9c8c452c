"""The broker: processors, managers and their controller."""
