// Iceberg's Java library as a judge: reads one order a line as JSON, and answers with one line of JSON.
// {"do": "read" | "append" | "expire" | "properties", "folder", "table", "filter"}: the catalog is a SQLite file.
// read: rows as text, and the number of files that the filter, a JSON expression, leaves. append: the newest snapshot's
// own files again. expire: all snapshots but the newest.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.jdbc.JdbcCatalog;

public class JavaIceberg {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        System.out.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            try {
                System.out.println("answer " + JSON.writeValueAsString(answer(JSON.readTree(line))));
            } catch (Exception error) {
                System.out.println("failed: " + error.toString().replace('\n', ' '));
            }
        }
    }

    private static JsonNode answer(JsonNode order) throws Exception {
        JdbcCatalog catalog = new JdbcCatalog();
        catalog.setConf(new Configuration());
        String folder = order.get("folder").asText();
        catalog.initialize("default", Map.of(
            "uri", "jdbc:sqlite:" + folder + "/catalog.db", "warehouse", "file://" + folder + "/warehouse"));
        try {
            Table table = catalog.loadTable(TableIdentifier.parse(order.get("table").asText()));
            return switch (order.get("do").asText()) {
                case "read" -> read(table, order);
                case "append" -> append(table);
                case "expire" -> expire(table);
                default -> JSON.valueToTree(new TreeMap<>(table.properties()));
            };
        } finally {
            catalog.close();
        }
    }

    private static JsonNode read(Table table, JsonNode order) throws Exception {
        String text = order.path("filter").asText("");
        Expression filter =
            text.isEmpty() ? Expressions.alwaysTrue() : ExpressionParser.fromJson(text, table.schema());
        ObjectNode found = JSON.createObjectNode();
        ArrayNode rows = found.putArray("rows");
        try (CloseableIterable<Record> records = IcebergGenerics.read(table).where(filter).build()) {
            for (Record record : records) {
                ArrayNode row = rows.addArray();
                for (int at = 0; at < record.size(); at++) {
                    Object value = record.get(at);
                    boolean isBytes = value instanceof ByteBuffer;
                    row.add(isBytes ? ((ByteBuffer) value).remaining() + " bytes" : String.valueOf(value));
                }
            }
        }
        int files = 0;
        try (var tasks = table.newScan().filter(filter).planFiles()) {
            for (var task : tasks) {
                files++;
            }
        }
        return found.put("files", files);
    }

    private static JsonNode append(Table table) {
        AppendFiles append = table.newAppend();
        for (DataFile file : table.currentSnapshot().addedDataFiles(table.io())) {
            append.appendFile(file);
        }
        append.commit();
        return JSON.getNodeFactory().numberNode(table.currentSnapshot().snapshotId());
    }

    private static JsonNode expire(Table table) {
        table.expireSnapshots().expireOlderThan(Long.MAX_VALUE).retainLast(1).commit();
        int left = 0;
        for (var snapshot : table.snapshots()) {
            left++;
        }
        return JSON.getNodeFactory().numberNode(left);
    }
}
