"""The program starts whose number of imports is limited, and what each runs in a new interpreter."""

STARTS = {
    "broker": ["-c", "import rmqha.broker.broker_startup"],
    "producer": ["-c", "from rmqha.client.producer.default_mq_producer import DefaultMQProducer"],
    "mqadmin": ["-c", "from rmqha.tools.command.mq_admin_startup import find_sub_command; "
                      "find_sub_command('clusterList')"],
    "rmqha --help": ["-m", "rmqha.launch", "rmqha", "--help"],
}
_TELL = "import sys, atexit; atexit.register(lambda: sys.stderr.write(' '.join(sys.modules))); "


def telling(arguments: list[str]) -> list[str]:
    """Return arguments of the interpreter that do the same, and print the loaded modules on standard error at the
    end."""
    kind, what, *rest = arguments
    if kind == "-c":
        return ["-c", _TELL + what]
    return ["-c", f"{_TELL}import runpy; sys.argv[1:] = {rest!r}; runpy.run_module({what!r}, run_name='__main__')"]
