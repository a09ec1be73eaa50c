/*
 * Writes with Pulsar's Java client what its users write, a topic for each case, and prints what
 * AUTO_CONSUME reads of each: one line of JSON, as tests/sources/test_others.py compares it.
 *
 * Arguments: the service URL, the admin URL, and a namespace; topics that are in it already are
 * read as well.
 */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.google.protobuf.EnumValue;
import com.google.protobuf.Method;
import com.google.protobuf.Syntax;
import com.google.protobuf.util.JsonFormat;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.Time;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.reflect.AvroSchema;
import org.apache.avro.reflect.Union;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.client.impl.schema.StringSchema;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

public class Others {
    static final ObjectMapper JSON = new ObjectMapper()
            .configure(SerializationFeature.FAIL_ON_EMPTY_BEANS, false);
    static PulsarClient client;
    static PulsarAdmin admin;
    static String prefix;

    @FunctionalInterface
    interface Fill<T> {
        void accept(Producer<T> producer) throws Exception;
    }

    static <T> void topic(String name, Schema<T> schema, Fill<T> fill) throws Exception {
        try (Producer<T> producer = client.newProducer(schema).topic(prefix + name).create()) {
            fill.accept(producer);
        }
    }

    @SafeVarargs
    static <T> void values(String name, Schema<T> schema, T... values) throws Exception {
        topic(name, schema, producer -> {
            for (T value : values) {
                producer.send(value);
            }
        });
    }

    // --- what users write -----------------------------------------------------------------------

    static void structs() throws Exception {
        values("avro", Schema.AVRO(Plain.class), Plain.full(), new Plain());
        values("avro-jsr310", Schema.AVRO(SchemaDefinition.<Modern>builder()
                .withPojo(Modern.class).withJSR310ConversionEnabled(true).build()),
                Modern.full(), new Modern());
        values("avro-required", Schema.AVRO(SchemaDefinition.<Word>builder()
                .withPojo(Word.class).withAlwaysAllowNull(false).build()), new Word("w", 2));
        values("avro-union", Schema.AVRO(Choice.class), new Choice(new Cat()), new Choice(new Dog()));
        values("json", Schema.JSON(Plain.class), Plain.full(), new Plain());
        values("json-jsr310", Schema.JSON(SchemaDefinition.<Modern>builder()
                .withPojo(Modern.class).withJSR310ConversionEnabled(true).build()),
                Modern.full(), new Modern());
        values("json-floats", Schema.JSON(Floats.class), new Floats(Double.NaN, Float.NaN),
                new Floats(Double.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY),
                new Floats(1e300, 0.1f));
        topic("json-unknown", Schema.JSON(Inner.class), producer -> producer.send(new Wider()));
        values("protobuf-native", Schema.PROTOBUF_NATIVE(Method.class),
                Method.newBuilder().setName("m").setRequestStreaming(true)
                        .setSyntax(Syntax.SYNTAX_PROTO3).build(),
                Method.getDefaultInstance());
        values("protobuf", Schema.PROTOBUF(EnumValue.class),
                EnumValue.newBuilder().setName("e").setNumber(3).build());
    }

    static void primitives() throws Exception {
        values("string", Schema.STRING, "text", "", "ä€😀");
        values("charset", new StringSchema(StandardCharsets.UTF_16), "text", "ä€😀");
        values("bool", Schema.BOOL, true, false);
        values("int8", Schema.INT8, (byte) -7);
        values("int16", Schema.INT16, (short) -300);
        values("int32", Schema.INT32, Integer.MIN_VALUE);
        values("int64", Schema.INT64, Long.MAX_VALUE);
        values("float", Schema.FLOAT, 1.5f, Float.NaN);
        values("double", Schema.DOUBLE, -2.25, Double.NEGATIVE_INFINITY);
        values("date", Schema.DATE, new Date(-1), new Date(1_795_176_000_123L));
        values("time", Schema.TIME, new Time(43_200_123L));
        values("timestamp", Schema.TIMESTAMP, new Timestamp(-1), new Timestamp(1_795_176_000_123L));
        values("instant", Schema.INSTANT, Instant.parse("2026-11-20T12:00:00.123456789Z"),
                Instant.parse("1969-12-31T23:59:59.999999999Z"));
        values("local-date", Schema.LOCAL_DATE, LocalDate.of(1969, 12, 31));
        values("local-time", Schema.LOCAL_TIME, LocalTime.of(23, 59, 59, 999_999_999));
        values("local-date-time", Schema.LOCAL_DATE_TIME,
                LocalDateTime.of(2026, 11, 20, 12, 0, 0, 123_456_789));
        values("bytes", Schema.BYTES, new byte[] {0, -1}, new byte[0]);
    }

    static void pairs() throws Exception {
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            String how = encoding.name().toLowerCase();
            topic("pair-" + how, Schema.KeyValue(Schema.AVRO(Inner.class), Schema.JSON(Inner.class), encoding),
                    producer -> {
                        producer.send(new KeyValue<>(Inner.of(1, "k"), Inner.of(2, "v")));
                        producer.send(new KeyValue<>(Inner.of(1, "k"), null));
                        producer.send(new KeyValue<>(null, Inner.of(2, "v")));
                        producer.send(new KeyValue<>(null, null));
                    });
            topic("pair-single-" + how, Schema.KeyValue(Schema.STRING, Schema.INT64, encoding),
                    producer -> {
                        producer.send(new KeyValue<>("a", 1L));
                        producer.send(new KeyValue<>("", -1L));
                        producer.send(new KeyValue<>("b", null));
                    });
            // As the adaptor of Kafka Connect's sources sends them, Debezium's too.
            Schema<byte[]> key = new Framed(KEY, 5), value = new Framed(ENVELOPE, 5);
            topic("pair-framed-" + how, Schema.KeyValue(key, value, encoding), producer -> {
                producer.send(new KeyValue<>(framed(keyOf(7), 5), framed(change(7), 5)));
                producer.send(new KeyValue<>(framed(keyOf(8), 5), null));
            });
        }
        topic("framed", new Framed(ENVELOPE, 5), producer -> {
            producer.send(framed(change(1), 5));
            producer.send(framed(change(2), 5));
        });
        topic("framed-later", new Framed(KEY, 5), producer -> producer.send(framed(keyOf(1), 5)));
        topic("framed-later", new Framed(WIDER_KEY, 0), producer -> {
            GenericData.Record wider = new GenericData.Record(WIDER_KEY);
            wider.put("id", 2);
            wider.put("__deleted", "no");
            producer.send(framed(wider, 0));
        });
        topic("connect-json", new Framed(KEY, 0, SchemaType.JSON),
                producer -> producer.send("{\"id\": 3}".getBytes(StandardCharsets.UTF_8)));
        byte[] envelope =
                "{\"schema\":{\"type\":\"int32\"},\"payload\":3}".getBytes(StandardCharsets.UTF_8);
        values("connect-envelope", Schema.BYTES, envelope);
        values("pair-envelope", Schema.KeyValue(Schema.BYTES, Schema.BYTES), // "json-with-envelope"
                new KeyValue<>(envelope, envelope));
    }

    static void versions() throws Exception {
        values("two-versions", Schema.AVRO(Inner.class), Inner.of(1, "x"));
        topic("two-versions", Schema.AVRO(Wider.class), producer -> producer.send(new Wider()));
        values("auto-produce", Schema.AVRO(Inner.class), Inner.of(1, "x"));
        topic("auto-produce", Schema.AUTO_PRODUCE_BYTES(),
                producer -> producer.send(Schema.AVRO(Inner.class).encode(Inner.of(2, "y"))));
        values("unversioned-avro", Schema.AVRO(Word.class), new Word("w", 1));
        topic("unversioned-avro", Schema.BYTES, producer -> producer.send(new byte[] {0, 0}));
        values("unversioned-json", Schema.JSON(Inner.class), Inner.of(1, "x"));
        values("unversioned-json", Schema.BYTES, "{\"a\": 5}".getBytes(StandardCharsets.UTF_8));
        values("unversioned-string", Schema.STRING, "named");
        values("unversioned-string", Schema.BYTES, "bare".getBytes(StandardCharsets.UTF_8));
        values("deleted", Schema.AVRO(Inner.class), Inner.of(1, "x"));
        admin.schemas().deleteSchema(prefix + "deleted", true);
        values("deleted-and-new", Schema.AVRO(Inner.class), Inner.of(1, "x"));
        topic("deleted-and-new", Schema.AVRO(Wider.class), producer -> producer.send(new Wider()));
        admin.schemas().deleteSchema(prefix + "deleted-and-new", true);
        values("deleted-and-new", Schema.AVRO(Inner.class), Inner.of(3, "z"));
        values("changed", Schema.AVRO(Inner.class), Inner.of(1, "x"));
        values("changed", Schema.JSON(Inner.class), Inner.of(2, "y"));
        topic("mixed-keys", Schema.AVRO(Inner.class), producer -> {
            List<java.util.concurrent.CompletableFuture<?>> sent = new ArrayList<>();
            for (int i = 0; i < 6; i++) {
                TypedMessageBuilder<Inner> message = producer.newMessage().value(Inner.of(i, "m"));
                if (i % 3 == 1) {
                    message.key("text" + i);
                } else if (i % 3 == 2) {
                    message.keyBytes(new byte[] {0, (byte) 0xff, (byte) i});
                }
                sent.add(message.sendAsync());
            }
            producer.flush();
            for (var one : sent) {
                one.get();
            }
        });
    }

    // --- Avro as Kafka's converters write it ------------------------------------------------------

    static final org.apache.avro.Schema KEY = parse("""
        {"type": "record", "name": "Key", "namespace": "server.inventory", "fields": [
          {"name": "id", "type": "int"}]}""");
    static final org.apache.avro.Schema WIDER_KEY = parse("""
        {"type": "record", "name": "Key", "namespace": "server.inventory", "fields": [
          {"name": "id", "type": "int"},
          {"name": "__deleted", "type": ["null", "string"], "default": null}]}""");
    static final org.apache.avro.Schema ENVELOPE = parse("""
        {"type": "record", "name": "Envelope", "namespace": "server.inventory", "fields": [
          {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
            {"name": "id", "type": "int"},
            {"name": "price", "type": {"type": "bytes", "scale": 2, "precision": 10,
              "logicalType": "decimal", "connect.name": "org.apache.kafka.connect.data.Decimal"}},
            {"name": "day", "type": {"type": "int", "connect.version": 1,
              "connect.name": "io.debezium.time.Date"}}]}], "default": null},
          {"name": "after", "type": ["null", "Value"], "default": null},
          {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
            {"name": "db", "type": "string"},
            {"name": "snapshot", "type": [{"type": "string", "connect.default": "false"}, "null"],
              "default": "false"}]}},
          {"name": "op", "type": "string"},
          {"name": "ts_ms", "type": ["null", "long"], "default": null}]}""");

    static org.apache.avro.Schema parse(String text) {
        return new org.apache.avro.Schema.Parser().parse(text);
    }

    static GenericData.Record keyOf(int id) {
        GenericData.Record key = new GenericData.Record(KEY);
        key.put("id", id);
        return key;
    }

    static GenericData.Record change(int id) {
        GenericData.Record after =
                new GenericData.Record(ENVELOPE.getField("after").schema().getTypes().get(1));
        after.put("id", id);
        after.put("price", ByteBuffer.wrap(new BigDecimal("12.50").unscaledValue().toByteArray()));
        after.put("day", 20_000);
        GenericData.Record source = new GenericData.Record(ENVELOPE.getField("source").schema());
        source.put("db", "inventory");
        source.put("snapshot", "last");
        GenericData.Record change = new GenericData.Record(ENVELOPE);
        change.put("after", after);
        change.put("source", source);
        change.put("op", "c");
        change.put("ts_ms", 1_795_176_000_123L);
        return change;
    }

    /** A zero and the number of a schema in front, as Confluent's serializer writes it. */
    static byte[] framed(GenericData.Record record, int size) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(Arrays.copyOf(new byte[] {0, 0, 0, 0, 1}, size));
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
        new GenericDatumWriter<GenericData.Record>(record.getSchema()).write(record, encoder);
        encoder.flush();
        return out.toByteArray();
    }

    // --- what AUTO_CONSUME reads ------------------------------------------------------------------

    static Object plain(Object value) throws Exception {
        if (value instanceof GenericRecord record) {
            return plain(record.getNativeObject());
        }
        if (value instanceof KeyValue<?, ?> pair) {
            Map<String, Object> both = new LinkedHashMap<>();
            both.put("key", plain(pair.getKey()));
            both.put("value", plain(pair.getValue()));
            return both;
        }
        if (value instanceof org.apache.avro.generic.GenericRecord record) {
            return avro(record.getSchema(), record);
        }
        if (value instanceof com.google.protobuf.Message message) {
            return JSON.readTree(JsonFormat.printer().includingDefaultValueFields()
                    .preservingProtoFieldNames().print(message));
        }
        if (value instanceof byte[] bytes) {
            return hex(bytes);
        }
        if (value instanceof Timestamp || value instanceof Instant || value instanceof LocalDateTime) {
            Instant at = value instanceof Timestamp moment ? moment.toInstant()
                    : value instanceof LocalDateTime local ? local.toInstant(ZoneOffset.UTC)
                    : (Instant) value;
            return micros(at.getEpochSecond() * 1_000_000 + at.getNano() / 1000);
        }
        if (value instanceof Time time) {
            return time.getTime();
        }
        if (value instanceof Date date) {
            return LocalDate.ofEpochDay(Math.floorDiv(date.getTime(), 86_400_000L)).toString();
        }
        if (value instanceof LocalTime time) {
            return time.toNanoOfDay();
        }
        return value instanceof LocalDate ? value.toString() : number(value);
    }

    /** By Avro's logical types, which generic records leave as they are. */
    static Object avro(org.apache.avro.Schema schema, Object value) {
        if (value == null) {
            return null;
        }
        if (schema.isUnion()) {
            return avro(schema.getTypes().get(GenericData.get().resolveUnion(schema, value)), value);
        }
        LogicalType logical = schema.getLogicalType();
        String name = logical == null ? "" : logical.getName();
        switch (schema.getType()) {
            case RECORD -> {
                Map<String, Object> fields = new LinkedHashMap<>();
                for (var field : schema.getFields()) {
                    var record = (org.apache.avro.generic.GenericRecord) value;
                    fields.put(field.name(), avro(field.schema(), record.get(field.pos())));
                }
                return fields;
            }
            case ARRAY -> {
                List<Object> items = new ArrayList<>();
                ((Iterable<?>) value).forEach(one -> items.add(avro(schema.getElementType(), one)));
                return items;
            }
            case MAP -> {
                Map<String, Object> items = new LinkedHashMap<>();
                ((Map<?, ?>) value).forEach(
                        (key, one) -> items.put(key.toString(), avro(schema.getValueType(), one)));
                return items;
            }
            case INT -> {
                return name.equals("date") ? LocalDate.ofEpochDay((Integer) value).toString() : value;
            }
            case LONG -> {
                return name.endsWith("timestamp-millis") ? micros((Long) value * 1000)
                        : name.endsWith("timestamp-micros") ? micros((Long) value) : value;
            }
            case BYTES, FIXED -> {
                byte[] bytes = value instanceof GenericFixed fixed
                        ? fixed.bytes() : ((ByteBuffer) value).duplicate().array();
                return logical instanceof LogicalTypes.Decimal decimal
                        ? Map.of("decimal", new BigDecimal(
                                new java.math.BigInteger(bytes), decimal.getScale()).toPlainString())
                        : hex(bytes);
            }
            case STRING, ENUM -> {
                return value.toString();
            }
            default -> {
                return number(value);
            }
        }
    }

    static Object number(Object value) {
        boolean isOdd = value instanceof Double d && !Double.isFinite(d)
                || value instanceof Float f && !Float.isFinite(f);
        return isOdd ? value.toString() : value;
    }

    static Object hex(byte[] bytes) {
        return Map.of("hex", HexFormat.of().formatHex(bytes));
    }

    static Object micros(long count) {
        return Map.of("micros", count);
    }

    static void print(String topic) throws Exception {
        List<Object> rows = new ArrayList<>();
        try (Consumer<GenericRecord> consumer = client.newConsumer(Schema.AUTO_CONSUME())
                .topic(topic).subscriptionName("java")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            for (long left = admin.topics().getStats(topic).getMsgInCounter(); left > 0; left--) {
                rows.add(row(consumer.receive(20, TimeUnit.SECONDS)));
            }
        } catch (Exception failure) {
            rows.add(Map.of("error", failure.toString()));
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("case", topic.substring(prefix.length()));
        line.put("rows", rows);
        System.out.println("READ " + JSON.writeValueAsString(line));
    }

    static Map<String, Object> row(Message<GenericRecord> message) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("key", message.hasKey() ? HexFormat.of().formatHex(message.getKeyBytes()) : null);
        row.put("data", HexFormat.of().formatHex(message.getData() == null ? new byte[0] : message.getData()));
        // getValue of 4.2.4 looks at framing in pairs only; decoding bytes, Avro's schema does.
        Schema<?> schema = message.getReaderSchema().orElse(Schema.BYTES);
        SchemaInfo info = schema.getSchemaInfo();
        boolean isAvro = info != null && info.getType() == SchemaType.AVRO && message.size() > 0;
        row.put("value", plain(isAvro
                ? schema.decode(message.getData(), message.getSchemaVersion()) : message.getValue()));
        return row;
    }

    public static void main(String[] args) throws Exception {
        prefix = "persistent://" + args[2] + "/";
        client = PulsarClient.builder().serviceUrl(args[0]).build();
        admin = PulsarAdmin.builder().serviceHttpUrl(args[1]).build();
        try {
            structs();
            primitives();
            pairs();
            versions();
            for (String topic : admin.topics().getList(args[2])) {
                if (!topic.contains("/__")) {
                    print(topic);
                }
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);  // the client's threads would keep the process
        }
        System.exit(0);
    }
}

/** The bytes are made by somebody else, who says how: as Pulsar's adaptor for Kafka Connect. */
class Framed implements Schema<byte[]> {
    private final SchemaInfo info;

    Framed(org.apache.avro.Schema schema, int size) {
        this(schema, size, SchemaType.AVRO);
    }

    Framed(org.apache.avro.Schema schema, int size, SchemaType type) {
        info = SchemaInfo.builder().name("Kafka").type(type)
                .schema(schema.toString().getBytes(StandardCharsets.UTF_8))
                .properties(Map.of("__AVRO_READ_OFFSET__", Integer.toString(size))).build();
    }

    @Override
    public byte[] encode(byte[] value) {
        return value;
    }

    @Override
    public SchemaInfo getSchemaInfo() {
        return info;
    }

    @Override
    public Schema<byte[]> clone() {
        return this;
    }
}

enum Color { RED, GREEN }

class Inner {
    public Integer a;
    public String b;

    static Inner of(int a, String b) {
        Inner made = new Inner();
        made.a = a;
        made.b = b;
        return made;
    }
}

class Wider extends Inner {
    public String more = "more";
    public List<Integer> numbers = List.of(1, 2);
}

class Word {
    public String word;
    @org.apache.avro.reflect.AvroDefault("0")
    public int n;

    Word() {}

    Word(String word, int n) {
        this.word = word;
        this.n = n;
    }
}

class Floats {
    public double d;
    public float f;

    Floats() {}

    Floats(double d, float f) {
        this.d = d;
        this.f = f;
    }
}

@Union({Cat.class, Dog.class})
interface Animal {}

class Cat implements Animal {
    public int lives = 9;
}

class Dog implements Animal {
    public String name = "Rex";
}

class Choice {
    public Animal animal;

    Choice() {}

    Choice(Animal animal) {
        this.animal = animal;
    }
}

class Plain {
    public boolean yes;
    public byte tiny;
    public short small;
    public int number;
    public Long big;
    public float f;
    public Double d;
    public String text;
    public byte[] raw;
    public Color color;
    public Inner inner;
    public List<String> names;
    public List<Inner> many;
    public Map<String, Long> counts;
    public int[] numbers;
    @AvroSchema("{\"type\": \"bytes\", \"logicalType\": \"decimal\", \"precision\": 10, \"scale\": 2}")
    public BigDecimal price;

    static Plain full() {
        Plain made = new Plain();
        made.yes = true;
        made.tiny = -1;
        made.small = -300;
        made.number = 70_000;
        made.big = Long.MIN_VALUE;
        made.f = 0.1f;
        made.d = 1e300;
        made.text = "ä\n\u0001";
        made.raw = new byte[] {0, -1, 2};
        made.color = Color.GREEN;
        made.inner = Inner.of(1, null);
        made.names = List.of("a", "");
        made.many = List.of(Inner.of(2, "b"), new Inner());
        made.counts = Map.of("k", 5L);
        made.numbers = new int[] {1, 2};
        made.price = new BigDecimal("12.50");
        return made;
    }
}

class Modern {
    public Instant at;
    public LocalDate day;
    public LocalTime time;
    public LocalDateTime local;
    public UUID id;
    @AvroSchema("{\"type\": \"bytes\", \"logicalType\": \"decimal\", \"precision\": 10, \"scale\": 2}")
    public BigDecimal price;

    static Modern full() {
        Modern made = new Modern();
        made.at = Instant.parse("2026-11-20T12:00:00.123Z");
        made.day = LocalDate.of(2026, 11, 20);
        made.time = LocalTime.of(1, 2, 3, 456_000_000);
        made.local = LocalDateTime.of(2026, 11, 20, 12, 0, 0, 123_456_000);
        made.id = UUID.fromString("12345678-1234-1234-1234-123456789abc");
        made.price = new BigDecimal("-0.05");
        return made;
    }
}
