// Kafka's own client, reading to the end: `java Read.java SERVERS TOPIC PARTITION ISOLATION [TOPIC …]` prints a line for each
// partition with the number of records, the CRC-32 of offset, key and value of all of them, and the position at the end.

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Read {
    public static void main(String[] args) {
        for (int i = 1; i < args.length; i += 3) {
            TopicPartition tp = new TopicPartition(args[i], Integer.parseInt(args[i + 1]));
            Map<String, Object> config = Map.of("bootstrap.servers", args[0], "isolation.level", args[i + 2]);
            var bytes = new ByteArrayDeserializer();
            try (var consumer = new KafkaConsumer<byte[], byte[]>(config, bytes, bytes)) {
                consumer.assign(List.of(tp));
                consumer.seekToBeginning(List.of(tp));
                long end = consumer.endOffsets(List.of(tp)).get(tp);
                int count = 0;
                CRC32 crc = new CRC32();
                while (consumer.position(tp) < end) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        count++;
                        crc.update(ByteBuffer.allocate(8).putLong(record.offset()).array());
                        crc.update(record.key());
                        crc.update(record.value());
                    }
                }
                System.out.println(count + " " + crc.getValue() + " " + consumer.position(tp));
            }
        }
    }
}
