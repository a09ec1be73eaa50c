/*
 * Sends and reads messages with Pulsar's Java client, as tests/sinks/copies.py asks for it: each
 * line of the input is a request in JSON, each line of the output that begins with "ANSWER " its
 * answer. Bytes are base64.
 */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TypedMessageBuilder;

public class Messages {
    static final ObjectMapper JSON = new ObjectMapper();

    static byte[] bytes(JsonNode text) {
        return Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static Object send(PulsarClient client, JsonNode asked) throws Exception {
        // By the topic's schema in the registry, if it has one: each message names its version.
        boolean isPlain = asked.get("plain").asBoolean();
        Schema<byte[]> schema = isPlain ? Schema.BYTES : Schema.AUTO_PRODUCE_BYTES();
        try (Producer<byte[]> producer = client.newProducer(schema)
                .topic(asked.get("topic").asText())
                .enableBatching(asked.get("batched").asBoolean())
                .blockIfQueueFull(true)
                .create()) {
            for (JsonNode one : asked.get("messages")) {
                TypedMessageBuilder<byte[]> message = producer.newMessage();
                message.value(one.get("value").isNull() ? null : bytes(one.get("value")));
                if (!one.get("key").isNull()) {
                    if (one.get("key_is_binary").asBoolean()) {
                        message.keyBytes(bytes(one.get("key")));
                    } else {
                        message.key(new String(bytes(one.get("key")), "UTF-8"));
                    }
                }
                if (!one.get("ordering_key").isNull()) {
                    message.orderingKey(bytes(one.get("ordering_key")));
                }
                if (one.get("event_time").asLong() > 0) {
                    message.eventTime(one.get("event_time").asLong());
                }
                one.get("properties").fields().forEachRemaining(
                        pair -> message.property(pair.getKey(), pair.getValue().asText()));
                message.sendAsync();
            }
            producer.flush();
        }
        return null;
    }

    static Object read(PulsarClient client, JsonNode asked) throws Exception {
        List<Object> lines = new ArrayList<>();
        try (Reader<byte[]> reader = client.newReader(Schema.BYTES)
                .topic(asked.get("topic").asText())
                .startMessageId(MessageId.earliest)
                .create()) {
            for (int left = asked.get("count").asInt(); left > 0; left--) {
                Message<byte[]> message = reader.readNext(20, TimeUnit.SECONDS);
                if (message == null) {
                    break;
                }
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("value", message.getValue() == null ? null : text(message.getData()));
                line.put("key", message.hasKey() ? text(message.getKeyBytes()) : null);
                line.put("key_is_binary",
                        message.hasKey() ? message.hasBase64EncodedKey() : null);
                line.put("ordering_key",
                        message.hasOrderingKey() ? text(message.getOrderingKey()) : null);
                line.put("event_time", message.getEventTime());
                line.put("properties", new TreeMap<>(message.getProperties()));
                line.put("schema_version", text(message.getSchemaVersion()));
                lines.add(line);
            }
        }
        return lines;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build()) {
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                JsonNode asked = JSON.readTree(line);
                Object answer = asked.get("do").asText().equals("send")
                        ? send(client, asked) : read(client, asked);
                System.out.println("ANSWER " + JSON.writeValueAsString(answer));
                System.out.flush();
            }
        }
        System.exit(0);
    }
}
