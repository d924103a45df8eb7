// Kafka's own client as a member of a group: `java GroupMember SETTINGS`. Settings, events and commands are those of group_member.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class GroupMember implements ConsumerRebalanceListener {
    private static final Map<String, Class<?>> ASSIGNORS = Map.of(
            "range", RangeAssignor.class,
            "roundrobin", RoundRobinAssignor.class,
            "cooperative-sticky", CooperativeStickyAssignor.class);
    private static final LinkedBlockingQueue<String> COMMANDS = new LinkedBlockingQueue<>();

    private final Map<TopicPartition, Long> next = new HashMap<>(); // as in group_member.py, without those of which nothing came
    private final int commitEvery;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private int uncommitted;

    public static void main(String[] args) throws Exception {
        Thread listener = new Thread(GroupMember::listen);
        listener.setDaemon(true);
        listener.start();
        var member = new GroupMember(new ObjectMapper().readTree(args[0]));
        tell("started", "");
        member.run();
    }

    private static void listen() {
        try {
            var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                COMMANDS.add(line.strip());
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    private static void tell(String event, String more) {
        double at = System.nanoTime() / 1e9; // CLOCK_MONOTONIC, as in Python
        System.out.println(String.format(Locale.ROOT, "{\"event\": \"%s\", \"at\": %.6f%s}", event, at, more));
        System.out.flush();
    }

    private static void tell(String event, Collection<TopicPartition> partitions) {
        var found = partitions.stream().map(tp -> String.format("[\"%s\", %d]", tp.topic(), tp.partition())).toList();
        tell(event, ", \"partitions\": " + found);
    }

    private static void tell(String event, Exception error) {
        String text = String.valueOf(error.getMessage()).replace("\\", "/").replace("\"", "'").replace("\n", " ");
        tell(event, String.format(", \"error\": \"%s\", \"text\": \"%s\"", error.getClass().getSimpleName(), text));
    }

    private GroupMember(JsonNode settings) {
        commitEvery = settings.get("commit_every").asInt();
        List<Class<?>> assignors = new ArrayList<>();
        settings.get("strategies").forEach(name -> assignors.add(ASSIGNORS.get(name.asText())));
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", settings.get("servers").asText());
        config.put("group.id", settings.get("group").asText());
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", settings.get("auto_commit").asBoolean());
        config.put("group.protocol", settings.get("protocol").asText());
        if (settings.get("protocol").asText().equals("classic")) {
            config.put("session.timeout.ms", settings.get("session_ms").asInt());
            config.put("heartbeat.interval.ms", settings.get("heartbeat_ms").asInt());
            config.put("partition.assignment.strategy", assignors);
        }
        config.put("max.poll.records", settings.get("max_records").asInt());
        config.put("isolation.level", settings.get("isolation").asText());
        if (!settings.get("instance").isNull()) {
            config.put("group.instance.id", settings.get("instance").asText());
        }
        consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<String> topics = new ArrayList<>();
        settings.get("topics").forEach(topic -> topics.add(topic.asText()));
        consumer.subscribe(topics, this);
    }

    private void run() throws InterruptedException {
        boolean isHeld = false;
        while (true) {
            String command = isHeld ? COMMANDS.take() : COMMANDS.poll();
            if (command == null) {
                step();
            } else if (command.equals("close")) {
                consumer.close();
                tell("closed", "");
                return;
            } else if (command.equals("commit")) {
                commit();
            } else {
                isHeld = command.equals("hold");
                tell(command, "");
            }
        }
    }

    private void step() {
        ConsumerRecords<byte[], byte[]> found;
        try {
            found = consumer.poll(Duration.ofMillis(100));
        } catch (Exception error) {
            tell("raised", error);
            return;
        }
        for (TopicPartition tp : found.partitions()) {
            long first = -1;
            long last = -1;
            for (ConsumerRecord<byte[], byte[]> record : found.records(tp)) {
                long number = numberOf(new String(record.value(), StandardCharsets.UTF_8), tp.partition());
                if (number != last + 1 || first < 0) {
                    tellRun(tp, first, last);
                    first = number;
                }
                last = number;
            }
            tellRun(tp, first, last);
            next.put(tp, last + 1);
            uncommitted += found.records(tp).size();
        }
        if (commitEvery > 0 && uncommitted >= commitEvery) {
            commit();
        }
    }

    private static void tellRun(TopicPartition tp, long first, long last) {
        if (first >= 0) {
            String run = ", \"partition\": [\"%s\", %d], \"first\": %d, \"count\": %d";
            tell("records", String.format(run, tp.topic(), tp.partition(), first, last - first + 1));
        }
    }

    private static long numberOf(String value, int partition) {
        String start = "partition " + partition + ", record ";
        if (!value.startsWith(start)) {
            throw new IllegalStateException(value + " was handed out as a record of partition " + partition);
        }
        return Long.parseLong(value.substring(start.length()));
    }

    private void commit() {
        uncommitted = 0;
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        List<String> upto = new ArrayList<>();
        next.forEach((tp, number) -> {
            offsets.put(tp, new OffsetAndMetadata(number));
            upto.add(String.format("[\"%s\", %d, %d]", tp.topic(), tp.partition(), number));
        });
        try {
            consumer.commitSync(offsets);
        } catch (Exception error) {
            tell("refused", error);
            return;
        }
        tell("committed", ", \"upto\": " + upto);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (commitEvery > 0) {
            commit();
        }
        next.keySet().removeAll(partitions);
        tell("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        next.keySet().removeAll(partitions);
        tell("lost", partitions);
    }
}
