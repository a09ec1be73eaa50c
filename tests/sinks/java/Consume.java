/*
 * Reads topics with Pulsar's Java client, as tests/sinks/test_schemas.py asks for it: each three
 * arguments behind the service URL are a topic, a schema and how many messages there are. Each
 * message is one line of JSON.
 */

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

public class Consume {
    static final ObjectMapper JSON = new ObjectMapper();

    static Schema<?> schema(String name) {
        return switch (name) {
            case "auto" -> Schema.AUTO_CONSUME();
            case "avro" -> Schema.AVRO(Flight.class);
            case "json" -> Schema.JSON(Flight.class);
            case "string" -> Schema.STRING;
            case "boolean" -> Schema.BOOL;
            case "int8" -> Schema.INT8;
            case "int16" -> Schema.INT16;
            case "int32" -> Schema.INT32;
            case "int64" -> Schema.INT64;
            case "float" -> Schema.FLOAT;
            case "double" -> Schema.DOUBLE;
            case "date" -> Schema.DATE;
            case "timestamp" -> Schema.TIMESTAMP;
            case "separated" -> Schema.KeyValue(
                    Schema.INT64, Schema.AVRO(Flight.class), KeyValueEncodingType.SEPARATED);
            case "inline" -> Schema.KeyValue(
                    Schema.INT64, Schema.AVRO(Flight.class), KeyValueEncodingType.INLINE);
            default -> throw new IllegalArgumentException(name);
        };
    }

    static Object plain(Object value) {
        if (value instanceof GenericRecord record) {
            return plain(record.getNativeObject());
        }
        if (value instanceof KeyValue<?, ?> pair) {
            Map<String, Object> both = new LinkedHashMap<>();
            both.put("key", plain(pair.getKey()));
            both.put("value", plain(pair.getValue()));
            return both;
        }
        if (value instanceof java.util.Date date) {
            return date.getTime();
        }
        if (value instanceof org.apache.avro.generic.GenericRecord
                || value instanceof com.fasterxml.jackson.databind.JsonNode
                || value instanceof com.google.protobuf.Message) {
            return value.toString();
        }
        return value;
    }

    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build()) {
            for (int i = 1; i < args.length; i += 3) {
                try (Consumer<?> consumer = client.newConsumer(schema(args[i + 1]))
                        .topic(args[i])
                        .subscriptionName("java")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe()) {
                    for (int left = Integer.parseInt(args[i + 2]); left > 0; left--) {
                        Message<?> message = consumer.receive(20, TimeUnit.SECONDS);
                        Map<String, Object> line = new LinkedHashMap<>();
                        line.put("topic", args[i]);
                        line.put("schema", args[i + 1]);
                        line.put("key", message.getKey());
                        line.put("value", plain(message.getValue()));
                        System.out.println("READ " + JSON.writeValueAsString(line));
                    }
                } catch (Exception failure) {
                    Map<String, Object> line = new LinkedHashMap<>();
                    line.put("topic", args[i]);
                    line.put("schema", args[i + 1]);
                    line.put("error", failure.toString());
                    System.out.println("READ " + JSON.writeValueAsString(line));
                }
            }
        }
        System.exit(0);
    }
}

class Inner {
    public Long a;
    public String b;
}

class Flight {
    public Integer id;
    public String name;
    public Double x;
    public List<Long> l;
    public Map<String, Long> mp;
    public Inner s;
    public Boolean flag;
}
