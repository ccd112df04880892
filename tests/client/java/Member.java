// A member of a consumer group, of Kafka's own Java client.
//
// In: arguments `BOOTSTRAP GROUP TOPIC`; the end of the input ends the member. Out: a line with the
// numbers of the assigned partitions, after each change.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Member {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("session.timeout.ms", 6000);
        settings.put("heartbeat.interval.ms", 50);
        settings.put("enable.auto.commit", false);
        settings.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        var ended = new AtomicBoolean();
        var watch = new Thread(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException broken) {
                // The reader of the output is gone, too.
            }
            ended.set(true);
        });
        watch.setDaemon(true);
        watch.start();
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(arguments[2]));
            Set<Integer> told = null;
            while (!ended.get()) {
                consumer.poll(Duration.ofMillis(20));
                Set<Integer> now = consumer.assignment().stream()
                    .map(each -> each.partition()).collect(Collectors.toCollection(TreeSet::new));
                if (!now.equals(told)) {
                    told = now;
                    System.out.println(now.stream().map(String::valueOf)
                        .collect(Collectors.joining(" ")));
                }
            }
        }
    }
}
