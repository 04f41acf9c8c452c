"""The command and its codecs: JSON and ROCKETMQ headers, fastjson's dialect of JSON, and typed bodies."""
