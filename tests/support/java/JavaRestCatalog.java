// A REST catalog of Iceberg's own handlers: the requirements and updates of a commit are checked as by any Java server.
// Arguments: folder with the SQLite file and the warehouse. Prints its port. A commit whose table has the property
// "test.lose-answers" is done, and answered with code 504.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.RenameTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.LoadTableResponse;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

public class JavaRestCatalog {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static JdbcCatalog catalog;

    public static void main(String[] args) throws Exception {
        JSON.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
        JSON.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
        JSON.setPropertyNamingStrategy(PropertyNamingStrategies.KEBAB_CASE);
        RESTSerializers.registerAll(JSON);
        catalog = new JdbcCatalog();
        catalog.setConf(new Configuration());
        catalog.initialize("default", Map.of(
            "uri", "jdbc:sqlite:" + args[0] + "/catalog.db", "warehouse", "file://" + args[0] + "/warehouse"));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        server.createContext("/", JavaRestCatalog::handle);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
        System.out.println("ready " + server.getAddress().getPort());
        System.in.read();
        server.stop(0);
        System.exit(0);
    }

    private static void handle(HttpExchange exchange) {
        int code = 200;
        String text;
        try {
            String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            String[] path = exchange.getRequestURI().getPath().substring(1).split("/");
            Object found = answer(exchange.getRequestMethod(), path, body);
            text = JSON.writeValueAsString(found);
            if (found instanceof LoadTableResponse table && exchange.getRequestMethod().equals("POST")
                && table.tableMetadata().properties().containsKey("test.lose-answers")) {
                throw new java.io.IOException("the answer is lost");
            }
        } catch (Exception error) {
            code = error instanceof NoSuchTableException || error instanceof NoSuchNamespaceException ? 404
                : error instanceof AlreadyExistsException || error instanceof CommitFailedException ? 409
                : error instanceof java.io.IOException ? 504 : 400;
            String said = String.valueOf(error.getMessage()).replaceAll("[^\\w .,:-]", "'");
            text = "{\"error\": {\"message\": \"" + said + "\", \"type\": \""
                + error.getClass().getSimpleName() + "\", \"code\": " + code + "}}";
        }
        try (exchange) {
            byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().add("Content-Type", "application/json");
            exchange.sendResponseHeaders(code, bytes.length);
            exchange.getResponseBody().write(bytes);
        } catch (java.io.IOException error) {
            System.err.println(error);
        }
    }

    private static Object answer(String method, String[] path, String body) throws Exception {
        boolean isGet = method.equals("GET");
        if (path[1].equals("config")) {
            return Map.of("defaults", Map.of(), "overrides", Map.of());
        }
        if (path.length == 2) {
            return CatalogHandlers.createNamespace(catalog, JSON.readValue(body, CreateNamespaceRequest.class));
        }
        if (path[1].equals("tables")) {
            CatalogHandlers.renameTable(catalog, JSON.readValue(body, RenameTableRequest.class));
            return Map.of();
        }
        Namespace namespace = Namespace.of(path[2]);
        if (path.length == 3) {
            return CatalogHandlers.loadNamespace(catalog, namespace);
        }
        if (path.length == 4) {
            CreateTableRequest request = JSON.readValue(body, CreateTableRequest.class);
            return request.stageCreate()
                ? CatalogHandlers.stageTableCreate(catalog, namespace, request)
                : CatalogHandlers.createTable(catalog, namespace, request);
        }
        TableIdentifier table = TableIdentifier.of(namespace, path[4]);
        return isGet
            ? CatalogHandlers.loadTable(catalog, table, SnapshotMode.ALL)
            : CatalogHandlers.updateTable(catalog, table, JSON.readValue(body, UpdateTableRequest.class));
    }
}
