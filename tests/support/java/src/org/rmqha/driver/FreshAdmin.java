package org.rmqha.driver;

import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin as a new process has it: its commands are new each time, as some of them can run only once. */
final class FreshAdmin extends MQAdminStartup {
    private FreshAdmin() {
    }

    static void run(String[] args, RPCHook hook) {
        subCommandList.clear();
        main0(args, hook);
    }
}
