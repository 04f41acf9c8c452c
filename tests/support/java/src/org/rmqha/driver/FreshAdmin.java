package org.rmqha.driver;

import java.lang.reflect.Field;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin as a new process has it: its commands are new each time, as some of them can run only once. */
final class FreshAdmin extends MQAdminStartup {
    private FreshAdmin() {
    }

    /** Credentials come from home/conf/tools.yml; without a home there are none. */
    static void run(String[] args, String home) throws ReflectiveOperationException {
        Field rocketmqHome = MQAdminStartup.class.getDeclaredField("rocketmqHome");
        rocketmqHome.setAccessible(true);
        String before = (String) rocketmqHome.get(null);
        subCommandList.clear();
        try {
            rocketmqHome.set(null, home == null ? before : home);
            main0(args, null);
        } finally {
            rocketmqHome.set(null, before);
        }
    }
}
