"""A measurement of failovers as unchanged clients feel them: `python -m tests.faults.felt --help`.

    __main__.py  the options
    run.py       one run: the cluster, the clients, the events, the table
    system.py    three replicas of one or two broker names, of rmqha or of 5.1.4; hosts that go away
    events.py    switch, kill, gone, crash, none
    programs.py  the clients' processes: Go, Java 4.9.8 and 5.1.4, C++, rmqha's own; their sources are in tests/support
    records.py   the lines that the clients write, read again
    figures.py   client by event: failed sends, the longest gaps and delays; the table
    check.py     no acknowledged message is lost, or stored more often than it was sent, or missing at its consumer

The clients keep their default retries and time-outs.
"""
