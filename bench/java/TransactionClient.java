// The Java client in one transaction, batching tuned: a peer of `make bench`.
// Reads "topic rows kind" lines, the kind being the bytes of a value, or the schema of a record, "avro" or "json";
// writes so many rows to the topic in one transaction; prints "took" and the seconds, or "failed" and why. The producer
// is there before the clock starts.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.IntFunction;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SizeUnit;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.impl.transaction.TransactionImpl;

public class TransactionClient {
    private static final int DIGITS = 9;

    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder()
                .serviceUrl(args[0])
                .enableTransaction(true)
                .memoryLimit(16, SizeUnit.MEGA_BYTES) // the default of 64 keeps G1 busier, and is no faster (measured)
                .ioThreads(2)
                .build()) {
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            for (String line = orders.readLine(); line != null; line = orders.readLine()) {
                String[] words = line.split(" ");
                try {
                    int rows = Integer.parseInt(words[1]);
                    System.out.println("took " + switch (words[2]) {
                        case "avro" -> write(client, words[0], rows, Schema.AVRO(Flight.class), Flight::new);
                        case "json" -> write(client, words[0], rows, Schema.JSON(Flight.class), Flight::new);
                        default -> write(client, words[0], rows, Schema.BYTES, texts(Integer.parseInt(words[2])));
                    });
                } catch (Exception error) {
                    System.out.println("failed " + error);
                }
            }
        }
    }

    /** Texts of one length that end with the row's number. */
    static IntFunction<byte[]> texts(int valueBytes) {
        byte[] filler = "the quick brown fox jumps ".repeat(valueBytes / 26 + 1).getBytes(StandardCharsets.US_ASCII);
        Arrays.fill(filler, valueBytes - DIGITS, valueBytes, (byte) '0');
        return row -> {
            byte[] value = Arrays.copyOf(filler, valueBytes);
            for (int place = valueBytes - 1, left = row; left > 0; left /= 10) {
                value[place--] = (byte) ('0' + left % 10);
            }
            return value;
        };
    }

    static <T> double write(PulsarClient client, String topic, int rows, Schema<T> schema, IntFunction<T> values)
            throws Exception {
        try (Producer<T> producer = client.newProducer(schema)
                .topic(topic)
                .sendTimeout(0, TimeUnit.SECONDS) // transactions demand it
                .enableBatching(true)
                .batchingMaxMessages(65536)
                .batchingMaxBytes(1 << 20)
                .batchingMaxPublishDelay(10, TimeUnit.MILLISECONDS)
                .blockIfQueueFull(true)
                .maxPendingMessages(0)
                .compressionType(CompressionType.NONE)
                .create()) {
            long began = System.nanoTime();
            Transaction txn = client.newTransaction()
                    .withTransactionTimeout(5, TimeUnit.MINUTES).build().get();
            // Else all that is sent until a partition is registered with the transaction hangs on one future, without
            // a limit: the heap fills up, at a third of the rate (measured).
            CompletableFuture.allOf(client.getPartitionsForTopic(topic).get().stream()
                    .map(((TransactionImpl) txn)::registerProducedTopic)
                    .toArray(CompletableFuture[]::new)).get();
            AtomicReference<Throwable> failed = new AtomicReference<>();
            for (int row = 0; row < rows; row++) {
                producer.newMessage(txn).value(values.apply(row)).sendAsync().exceptionally(error -> {
                    failed.set(error);
                    return null;
                });
            }
            producer.flush();
            txn.commit().get();
            if (failed.get() != null) {
                throw new IllegalStateException(failed.get());
            }
            return (System.nanoTime() - began) / 1e9;
        }
    }
}

/** The record of bench/sending.py. */
class Flight {
    public long id;
    public String carrier;
    public String origin;
    public String dest;
    public Double delay;
    public int distance;
    public long at;
    public String tail;

    Flight(int row) {
        id = row;
        carrier = "UA";
        origin = "JFK";
        dest = "LAX";
        delay = row % 33 == 0 ? null : row % 100 - 20.5;
        distance = 100 + row % 2400;
        at = 1_700_000_000_000_000L + row;
        tail = String.format("N%05d", row % 90_000);
    }

    public Flight() {
    }
}
