"""The hooks that write message traces."""
