/*
 * Writes java_routing.json and java_batches.json beside this file, with the classes of Pulsar's
 * Java client itself, so that our encoder is held against them and not against a reading of them.
 *
 *   java -cp '<jars>/*' tests/wire/batch/vectors/Vectors.java tests/wire/batch/vectors
 *
 * <jars>: pulsar-client-original and what it depends on, for example by
 *   mvn dependency:copy-dependencies -DoutputDirectory=<jars>
 * of a pom whose only dependency is org.apache.pulsar:pulsar-client-original:4.2.4. JDK 17 or later.
 */

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TopicMetadata;
import org.apache.pulsar.client.impl.JavaStringHash;
import org.apache.pulsar.client.impl.MessageImpl;
import org.apache.pulsar.client.impl.RoundRobinPartitionMessageRouterImpl;
import org.apache.pulsar.client.util.MathUtils;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.api.proto.SingleMessageMetadata;
import org.apache.pulsar.common.protocol.Commands;

public class Vectors {
    static final int[] COUNTS = {1, 2, 3, 4, 16, 100};

    public static void main(String[] args) throws IOException {
        Path folder = Path.of(args[0]);
        Files.writeString(folder.resolve("java_routing.json"), routing());
        Files.writeString(folder.resolve("java_batches.json"), batches());
    }

    // --- where keys go ---------------------------------------------------------------------

    static String routing() {
        Random random = new Random(20260101);
        List<String> lines = new ArrayList<>();
        for (String key : textKeys(random)) {
            lines.add(route("text", key.getBytes(StandardCharsets.UTF_8), key));
        }
        for (int i = 0; i < 60; i++) {
            byte[] key = new byte[i < 20 ? i : random.nextInt(200)];
            random.nextBytes(key);
            lines.add(route("binary", key, Base64.getEncoder().encodeToString(key)));
        }
        return list(lines);
    }

    static List<String> textKeys(Random random) {
        List<String> keys = new ArrayList<>(List.of("", "a", "b", "ab", "ba", " ", "\u0000", "\n",
                "user-1", "user-2", "0", "-1", "null", "A".repeat(1000), "polygenelubricants",
                "\u00e9", "e\u0301", "na\u00efve caf\u00e9", "\u00df", "\u0416\u0434\u0443",
                "\u4e2d\u6587", "\u65e5\u672c\u8a9e\u306e\u30ad\u30fc", "\ud55c\uad6d\uc5b4",
                "\ud83d\ude00", "a\ud83d\ude00b", "\ud83d\ude00\ud83d\ude01\ud83d\ude02",
                "\ud834\udd1e clef", "\uffff", "\ue000", "\u07ff\u0800", "\udbff\udfff",
                "\u05d0\u05d1", "\ud83d\udc69\u200d\ud83d\ude80", "\u4e2d".repeat(500),
                "\ud83d\ude00".repeat(300)));
        int[] ceilings = {0x80, 0x250, 0x3000, 0xD800, 0x20000};
        while (keys.size() < 240) {
            int ceiling = ceilings[keys.size() % ceilings.length];
            StringBuilder key = new StringBuilder();
            for (int left = random.nextInt(40); left > 0; left--) {
                int point = random.nextInt(ceiling);
                key.appendCodePoint(point >= 0xD800 && point < 0xE000 ? 0x1F600 : point);
            }
            keys.add(key.toString());
        }
        return keys;
    }

    /** One line: the key's own bytes, its hash, and its partition for each count. */
    static String route(String kind, byte[] bytes, String key) {
        List<String> partitions = new ArrayList<>();
        List<String> murmur = new ArrayList<>();
        int hash = JavaStringHash.getInstance().makeHash(key);
        MessageMetadata metadata = new MessageMetadata().setPartitionKey(key)
                .setPartitionKeyB64Encoded(kind.equals("binary"));
        MessageImpl<byte[]> message =
                MessageImpl.create(metadata, ByteBuffer.allocate(0), Schema.BYTES, "t");
        for (int count : COUNTS) {
            int partition = router(count).choosePartition(message, topic(count));
            if (partition != MathUtils.signSafeMod(hash, count)) {
                throw new IllegalStateException("the router does not use this hash");
            }
            partitions.add(quote(Integer.toString(count)) + ": " + partition);
            int other = murmur(count).choosePartition(message, topic(count));
            murmur.add(quote(Integer.toString(count)) + ": " + other);
        }
        return "{\"kind\": " + quote(kind) + ", \"key\": " + quote(hex(bytes)) + ", \"hash\": "
                + hash + ", \"partitions\": {" + String.join(", ", partitions) + "}, \"murmur3\": {"
                + String.join(", ", murmur) + "}}";
    }

    static RoundRobinPartitionMessageRouterImpl murmur(int count) {
        return new RoundRobinPartitionMessageRouterImpl(HashingScheme.Murmur3_32Hash, 0, false, 1);
    }

    static RoundRobinPartitionMessageRouterImpl router(int count) {
        return new RoundRobinPartitionMessageRouterImpl(HashingScheme.JavaStringHash, 0, false, 1);
    }

    static TopicMetadata topic(int count) {
        return new TopicMetadata() {
            @Override
            public int numPartitions() {
                return count;
            }
        };
    }

    // --- batch payloads --------------------------------------------------------------------

    record Row(byte[] value, String key, byte[] keyBytes, Long eventTime,
               Map<String, String> properties, byte[] orderingKey) {
    }

    /**
     * Batches in which all rows have text keys or all have binary ones. `fields` is a batch that
     * says only what the row says; `client` is what the client's own path makes of the same rows.
     */
    static String batches() {
        return list(List.of(
                batch("value only", List.of(row("", null, null, null), row("x", null, null, null),
                        row("y".repeat(127), null, null, null),
                        row("z".repeat(128), null, null, null),
                        row("q".repeat(16384), null, null, null))),
                batch("keys", List.of(row("1", "k", null, null), row("2", "", null, null),
                        row("3", null, null, null), row("4", "\u00e9\ud83d\ude00", null, null),
                        row("5", "k".repeat(300), null, null))),
                batch("event times", List.of(row("1", null, 1L, null), row("2", null, 127L, null),
                        row("3", null, 128L, null), row("4", null, 1790000000000L, null),
                        row("5", null, Long.MAX_VALUE, null), row("6", null, null, null))),
                batch("properties", List.of(row("1", null, null, Map.of("a", "b")),
                        row("2", null, null, ordered("a", "", "", "b", "\u4e2d", "\ud83d\ude00")),
                        row("3", null, null, null),
                        row("4", null, null, ordered("k".repeat(130), "v".repeat(200))))),
                batch("all columns", List.of(row("1", "k", 5L, Map.of("a", "b")),
                        row("", "key-2", 1790000000000L, ordered("x", "1", "y", "2")),
                        row("3", null, 7L, null), row("4", "k", null, Map.of("a", "b")),
                        row("5", null, null, null))),
                batch("tombstones", List.of(tombstone("k", null), row("2", "k", null, null),
                        tombstone("", null), tombstone("l", new byte[] {9}))),
                batch("binary keys", List.of(binary("1", new byte[] {}, null),
                        binary("2", new byte[] {0}, null), binary("3", new byte[] {1, -1}, null),
                        binary("4", new byte[] {-1, -2, -3}, new byte[] {7, 8}),
                        binary("5", null, new byte[] {}), binary("6", new byte[200], null)))));
    }

    static Row row(String value, String key, Long eventTime, Map<String, String> properties) {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        return new Row(bytes, key, null, eventTime, properties, null);
    }

    static Row binary(String value, byte[] key, byte[] orderingKey) {
        return new Row(value.getBytes(StandardCharsets.UTF_8), null, key, null, null, orderingKey);
    }

    static Row tombstone(String key, byte[] orderingKey) {
        return new Row(null, key, null, 5L, null, orderingKey);
    }

    static Map<String, String> ordered(String... parts) {
        Map<String, String> map = new LinkedHashMap<>();
        for (int i = 0; i < parts.length; i += 2) {
            map.put(parts[i], parts[i + 1]);
        }
        return map;
    }

    static String batch(String name, List<Row> rows) {
        ByteBuf fields = Unpooled.buffer();
        ByteBuf client = Unpooled.buffer();
        List<String> messages = new ArrayList<>();
        long sequenceId = 41;
        for (Row row : rows) {
            ByteBuf value = Unpooled.wrappedBuffer(row.value() == null ? new byte[0] : row.value());
            Commands.serializeSingleMessageInBatchWithPayload(single(row), value, fields);
            value.readerIndex(0);
            MessageMetadata whole = whole(row).setSequenceId(sequenceId++);
            Commands.serializeSingleMessageInBatchWithPayload(whole, value, client);
            messages.add("    " + describe(row));
        }
        return "{\"name\": " + quote(name) + ",\n  \"fields\": " + quote(ByteBufUtil.hexDump(fields))
                + ",\n  \"client\": " + quote(ByteBufUtil.hexDump(client))
                + ",\n  \"rows\": [\n" + String.join(",\n", messages) + "]}";
    }

    static SingleMessageMetadata single(Row row) {
        SingleMessageMetadata single = new SingleMessageMetadata();
        if (row.properties() != null) {
            row.properties().forEach((key, value) -> single.addProperty().setKey(key).setValue(value));
        }
        if (row.key() != null) {
            single.setPartitionKey(row.key());
        }
        if (row.keyBytes() != null) {
            single.setPartitionKey(Base64.getEncoder().encodeToString(row.keyBytes()));
            single.setPartitionKeyB64Encoded(true);
        }
        if (row.eventTime() != null) {
            single.setEventTime(row.eventTime());
        }
        if (row.orderingKey() != null) {
            single.setOrderingKey(row.orderingKey());
        }
        if (row.value() == null) {
            single.setNullValue(true);
        }
        return single;
    }

    /** As the client's message builder fills it in before the message goes into a batch. */
    static MessageMetadata whole(Row row) {
        MessageMetadata whole = new MessageMetadata().setProducerName("p").setPublishTime(1);
        if (row.properties() != null) {
            row.properties().forEach((key, value) -> whole.addProperty().setKey(key).setValue(value));
        }
        if (row.key() != null) {
            whole.setPartitionKey(row.key()).setPartitionKeyB64Encoded(false);
        }
        if (row.keyBytes() != null) {
            whole.setPartitionKey(Base64.getEncoder().encodeToString(row.keyBytes()));
            whole.setPartitionKeyB64Encoded(true);
        }
        if (row.eventTime() != null) {
            whole.setEventTime(row.eventTime());
        }
        if (row.orderingKey() != null) {
            whole.setOrderingKey(row.orderingKey());
        }
        if (row.value() == null) {
            whole.setNullValue(true);
        }
        return whole;
    }

    // --- JSON ------------------------------------------------------------------------------

    /** Everything that may be text of any kind goes out as the hex of its UTF-8. */
    static String describe(Row row) {
        List<String> properties = new ArrayList<>();
        if (row.properties() != null) {
            row.properties().forEach((key, value) ->
                    properties.add("[" + text(key) + ", " + text(value) + "]"));
        }
        return "{\"value\": " + blob(row.value()) + ", \"key\": " + text(row.key())
                + ", \"key_bytes\": " + blob(row.keyBytes())
                + ", \"event_time_ms\": " + row.eventTime()
                + ", \"ordering_key\": " + blob(row.orderingKey()) + ", \"properties\": "
                + (row.properties() == null ? "null" : "[" + String.join(", ", properties) + "]")
                + "}";
    }

    static String text(String text) {
        return text == null ? "null" : quote(hex(text.getBytes(StandardCharsets.UTF_8)));
    }

    static String blob(byte[] bytes) {
        return bytes == null ? "null" : quote(hex(bytes));
    }

    static String hex(byte[] bytes) {
        return ByteBufUtil.hexDump(bytes);
    }

    static String quote(String plain) {
        return "\"" + plain + "\"";
    }

    static String list(List<String> lines) {
        return "[\n" + String.join(",\n", lines) + "\n]\n";
    }
}
