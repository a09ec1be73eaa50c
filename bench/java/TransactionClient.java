// The Java client in one transaction, batching tuned: a peer of `make bench`.
// Reads "topic rows value-bytes" lines; writes so many rows to the topic in one transaction; prints "took" and the
// seconds, or "failed" and why. The producer is there before the clock starts.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
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
                    int valueBytes = Integer.parseInt(words[2]);
                    System.out.println("took " + write(client, words[0], rows, valueBytes));
                } catch (Exception error) {
                    System.out.println("failed " + error);
                }
            }
        }
    }

    static double write(PulsarClient client, String topic, int rows, int valueBytes) throws Exception {
        byte[] filler = "the quick brown fox jumps ".repeat(valueBytes / 26 + 1).getBytes(StandardCharsets.US_ASCII);
        Arrays.fill(filler, valueBytes - DIGITS, valueBytes, (byte) '0');
        try (Producer<byte[]> producer = client.newProducer(Schema.BYTES)
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
                byte[] value = Arrays.copyOf(filler, valueBytes);
                for (int place = valueBytes - 1, left = row; left > 0; left /= 10) {
                    value[place--] = (byte) ('0' + left % 10);
                }
                producer.newMessage(txn).value(value).sendAsync().exceptionally(error -> {
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
