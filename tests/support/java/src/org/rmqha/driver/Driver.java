package org.rmqha.driver;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.ClientConfig;

/**
 * One JVM that serves many commands: a JSON object per line on stdin ("id" and "cmd"), answers on stdout in any order.
 * An answer is {"id":..,"ok":true,..} or {"id":..,"ok":false,"error":".."};
 * before it there may be {"id":..,"progress":n}.
 */
public final class Driver {
    private static final PrintStream OUT = System.out;
    private static final Object ADMIN_LOCK = new Object();

    /** Timeout of sends that have to succeed on a busy host. */
    static final int SEND_TIMEOUT_MS = 120_000;

    /** Timeout of all other requests of clients: routes, heartbeats, and requests of a consumer at its start. */
    private static final int CALL_TIMEOUT_MS = 30_000;

    /** Receives the progress of a command before it is done. */
    interface Progress {
        void at(int count);
    }

    /** Gives a client the name servers of the command, and time for their answers. */
    static void pointToCluster(ClientConfig client, JSONObject command) {
        client.setNamesrvAddr(command.getString("namesrv"));
        client.setMqClientApiTimeout(CALL_TIMEOUT_MS);
        if (command.containsKey("heartbeatMs")) {
            client.setHeartbeatBrokerInterval(command.getIntValue("heartbeatMs"));
        }
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answer(new JSONObject().fluentPut("id", 0).fluentPut("ok", true));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject command = JSON.parseObject(line);
            Thread thread = new Thread(() -> serve(command), "command-" + command.getInteger("id"));
            thread.setDaemon(true);
            thread.start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void serve(JSONObject command) {
        int id = command.getIntValue("id");
        JSONObject result;
        try {
            result = run(command, count -> answer(new JSONObject().fluentPut("id", id).fluentPut("progress", count)));
            result.put("ok", true);
        } catch (Throwable e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            result = new JSONObject().fluentPut("ok", false).fluentPut("error", trace.toString());
        }
        result.put("id", id);
        answer(result);
    }

    private static JSONObject run(JSONObject command, Progress progress) throws Exception {
        switch (command.getString("cmd")) {
            case "produce":
                return Produce.run(command, progress);
            case "consume":
                return Consume.run(command, progress);
            case "drain":
                return Drain.run(command);
            case "pull":
                return Pull.run(command);
            case "queryKey":
                return Pull.queryKey(command);
            case "sendMixed":
                return Mixed.send(command);
            case "readMixed":
                return Mixed.read(command);
            case "sqlEvaluate":
                return Sql.evaluate(command);
            case "pullSql":
                return Select.pull(command);
            case "pushSql":
                return Select.push(command);
            case "ask":
                return Ask.run(command);
            case "bloom":
                return Sql.bloom(command);
            case "traceEncode":
                return Traces.encode(command);
            case "traceDecode":
                return Traces.decode(command);
            case "traceViews":
                return Traces.views(command);
            case "send":
                return Clients.send(command);
            case "receive":
                return Clients.receive(command);
            case "allocate":
                return Clients.allocate(command);
            case "namespaces":
                return Clients.namespaces(command);
            case "admin":
                return admin(command.getJSONArray("args").toArray(new String[0]), command.getString("home"));
            case "monitor":
                return Monitor.run(command);
            case "aclSend":
                return Acl.send(command);
            case "aclConsume":
                return Acl.consume(command);
            case "aclWork":
                return AclWork.run(command);
            case "aclAddresses":
                return Acl.addresses(command);
            case "aclYaml":
                return Acl.yaml(command);
            default:
                throw new IllegalArgumentException("unknown command " + command.getString("cmd"));
        }
    }

    /** Runs mqadmin inside this JVM, with the credentials in "home" if it is given, and returns its output. */
    private static JSONObject admin(String[] args, String home) throws ReflectiveOperationException {
        synchronized (ADMIN_LOCK) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            PrintStream printed = new PrintStream(bytes, true);
            PrintStream err = System.err;
            System.setOut(printed);
            System.setErr(printed);
            try {
                FreshAdmin.run(args, home);
            } finally {
                System.setOut(err);
                System.setErr(err);
            }
            return new JSONObject().fluentPut("out", new String(bytes.toByteArray(), StandardCharsets.UTF_8));
        }
    }

    private static void answer(JSONObject object) {
        byte[] line = (object.toString(SerializerFeature.BrowserCompatible) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(line, 0, line.length);
            OUT.flush();
        }
    }
}
