package org.rmqha.driver;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.util.BloomFilter;

/** The original's filter module alone: compiles and evaluates expressions, computes bits of bloom filters. */
final class Sql {
    private Sql() {
    }

    /**
     * Returns for each of "expressions" {"text"} and its values over "messages" (maps of properties), or {"error"}.
     * A value is true, false, null, or the text of the exception.
     */
    static JSONObject evaluate(JSONObject command) {
        JSONArray answers = new JSONArray();
        for (Object sql : command.getJSONArray("expressions")) {
            JSONObject answer = new JSONObject();
            try {
                Expression expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile((String) sql);
                answer.put("text", expression.toString());
                answer.put("values", values(expression, command.getJSONArray("messages")));
            } catch (MQFilterException e) {
                answer.put("error", e.getMessage());
            }
            answers.add(answer);
        }
        return new JSONObject().fluentPut("answers", answers);
    }

    private static JSONArray values(Expression expression, JSONArray messages) {
        JSONArray values = new JSONArray();
        for (Object message : messages) {
            try {
                values.add(expression.evaluate(new Properties((JSONObject) message)));
            } catch (Throwable e) {
                values.add(e.toString());
            }
        }
        return values;
    }

    /** Returns the bits of each of "names" in a filter of error rate "f" for "n" names, and its size. */
    static JSONObject bloom(JSONObject command) {
        BloomFilter filter = BloomFilter.createByFn(command.getIntValue("f"), command.getIntValue("n"));
        JSONArray bits = new JSONArray();
        for (Object name : command.getJSONArray("names")) {
            bits.add(filter.calcBitPositions((String) name));
        }
        return new JSONObject().fluentPut("m", filter.getM()).fluentPut("k", filter.getK()).fluentPut("bits", bits);
    }

    private static final class Properties implements EvaluationContext {
        private final JSONObject properties;

        Properties(JSONObject properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.getString(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(properties);
        }
    }
}
