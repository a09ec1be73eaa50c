// Pulsar's Java client as a judge: reads one order a line as JSON, and answers with one line of JSON.
// {"do": "send", "topic", "messages": [{"value", "key", "properties"}], "keys", "folder", "metadata", "compression",
// "batching", "chunking", "transaction"}, {"do": "read", "topic", "folder", "action"} and {"do": "consume", "topic",
// "subscription", "count", "max", "laterMs"}: receives, and acknowledges or retries later. Values are in base64.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;

public class JavaClient {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** NAME.public.pem and NAME.private.pem of a folder. */
    private record Folder(Path folder, Map<String, String> metadata) implements CryptoKeyReader {
        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> given) {
            return new EncryptionKeyInfo(read(name + ".public.pem"), metadata);
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> given) {
            return new EncryptionKeyInfo(read(name + ".private.pem"), given);
        }

        private byte[] read(String name) {
            try {
                return Files.readAllBytes(folder.resolve(name));
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).enableTransaction(true).build()) {
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            for (String line = orders.readLine(); line != null; line = orders.readLine()) {
                JsonNode order = JSON.readTree(line);
                try {
                    Object answer = switch (order.get("do").asText()) {
                        case "send" -> send(client, order);
                        case "consume" -> consume(client, order);
                        default -> read(client, order);
                    };
                    System.out.println("answer " + JSON.writeValueAsString(answer));
                } catch (Exception error) {
                    System.out.println("failed " + error.toString().replace('\n', ' '));
                }
            }
        }
    }

    private static Folder keys(JsonNode order) {
        Map<String, String> metadata = new HashMap<>();
        order.path("metadata").fields().forEachRemaining(one -> metadata.put(one.getKey(), one.getValue().asText()));
        return new Folder(Path.of(order.get("folder").asText()), metadata);
    }

    private static int send(PulsarClient client, JsonNode order) throws Exception {
        ProducerBuilder<byte[]> builder = client.newProducer()
                .topic(order.get("topic").asText())
                .sendTimeout(0, TimeUnit.SECONDS)
                .enableBatching(order.path("batching").asBoolean())
                .enableChunking(order.path("chunking").asBoolean())
                .compressionType(CompressionType.valueOf(order.path("compression").asText("NONE")));
        if (order.path("chunkBytes").asInt() > 0) {
            builder.chunkMaxMessageSize(order.get("chunkBytes").asInt());
        }
        if (order.hasNonNull("folder")) {
            builder.cryptoKeyReader(keys(order));
            order.get("keys").forEach(name -> builder.addEncryptionKey(name.asText()));
        }
        Transaction txn = order.path("transaction").asBoolean()
                ? client.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get() : null;
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        try (Producer<byte[]> producer = builder.create()) {
            for (JsonNode message : order.get("messages")) {
                TypedMessageBuilder<byte[]> one = txn == null ? producer.newMessage() : producer.newMessage(txn);
                if (message.hasNonNull("key")) {
                    one.key(message.get("key").asText());
                }
                message.path("properties").fields()
                        .forEachRemaining(pair -> one.property(pair.getKey(), pair.getValue().asText()));
                one.value(message.get("value").isNull() ? null : Base64.getDecoder().decode(message.get("value").asText()));
                sent.add(one.sendAsync());
            }
            producer.flush();
            for (CompletableFuture<MessageId> future : sent) {
                future.get();
            }
        }
        if (txn != null) {
            txn.commit().get();
        }
        return sent.size();
    }

    private static ArrayNode read(PulsarClient client, JsonNode order) throws Exception {
        ReaderBuilder<byte[]> builder = client.newReader()
                .topic(order.get("topic").asText())
                .startMessageId(MessageId.earliest);
        if (order.hasNonNull("folder")) {
            builder.cryptoKeyReader(keys(order))
                    .cryptoFailureAction(ConsumerCryptoFailureAction.valueOf(order.path("action").asText("FAIL")));
        }
        ArrayNode seen = JSON.createArrayNode();
        try (Reader<byte[]> reader = builder.create()) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(10, TimeUnit.SECONDS);
                if (message == null) {
                    throw new IllegalStateException("nothing came after " + seen.size() + " messages");
                }
                add(seen, message);
            }
        }
        return seen;
    }

    private static ArrayNode consume(PulsarClient client, JsonNode order) throws Exception {
        ArrayNode seen = JSON.createArrayNode();
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topic(order.get("topic").asText())
                .subscriptionName(order.get("subscription").asText())
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(order.get("max").asInt()).build())
                .subscribe()) {
            while (seen.size() < order.get("count").asInt()) {
                Message<byte[]> message = consumer.receive(20, TimeUnit.SECONDS);
                if (message == null) {
                    throw new IllegalStateException("nothing came after " + seen.size() + " messages");
                }
                add(seen, message);
                if (order.hasNonNull("laterMs")) {
                    consumer.reconsumeLater(message, order.get("laterMs").asLong(), TimeUnit.MILLISECONDS);
                } else {
                    consumer.acknowledge(message);
                }
            }
            Thread.sleep(1000); // it sends acknowledgements every 100 ms, and may lose them when it is closed
        }
        return seen;
    }

    private static void add(ArrayNode seen, Message<byte[]> message) {
        ObjectNode one = seen.addObject();
        one.put("value", message.getValue() == null ? null : Base64.getEncoder().encodeToString(message.getValue()));
        one.put("key", message.getKey());
        one.set("properties", JSON.valueToTree(message.getProperties()));
        one.put("encrypted", message.getEncryptionCtx().isPresent());
    }
}
