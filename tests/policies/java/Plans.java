// Prints the plans of Kafka's own assignors for the groups on standard input.
//
// In: for each group the lines `group NAME`, `topic NAME RACKS,OF,REPLICAS ...` (one word for each
// partition, `-` without racks), `member ID INSTANCE RACK TOPICS,...` (`-` for none), `end`. Out:
// `ID TOPIC-0 TOPIC-1 ...` for each member, then `end`.

import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.*;

public class Plans {
    static Map<String, Node> nodes = new HashMap<>();

    static Node[] replicas(String racks) {
        if (racks.equals("-")) {
            return new Node[] {node(null)};
        }
        return Arrays.stream(racks.split(",")).map(Plans::node).toArray(Node[]::new);
    }

    static Node node(String rack) {
        return nodes.computeIfAbsent(
            String.valueOf(rack), name -> new Node(nodes.size(), "host", 9092, rack));
    }

    static Optional<String> optional(String word) {
        return word.equals("-") ? Optional.empty() : Optional.of(word);
    }

    public static void main(String[] arguments) {
        Scanner input = new Scanner(System.in);
        AbstractPartitionAssignor assignor = null;
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Subscription> members = new HashMap<>();
        while (input.hasNextLine()) {
            String[] words = input.nextLine().split(" ");
            switch (words[0]) {
                case "group" -> {
                    assignor = words[1].equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
                    partitions = new ArrayList<>();
                    members = new HashMap<>();
                }
                case "topic" -> {
                    for (int n = 0; n < words.length - 2; n++) {
                        Node[] there = replicas(words[n + 2]);
                        partitions.add(new PartitionInfo(words[1], n, there[0], there, there));
                    }
                }
                case "member" -> {
                    List<String> topics =
                        words[4].equals("-") ? List.of() : List.of(words[4].split(","));
                    Subscription subscription = new Subscription(
                        topics, null, List.of(), -1, optional(words[3]));
                    subscription.setGroupInstanceId(optional(words[2]));
                    members.put(words[1], subscription);
                }
                default -> {
                    Cluster cluster = new Cluster(
                        "c", nodes.values(), partitions, Set.of(), Set.of());
                    Map<String, Assignment> plan = assignor
                        .assign(cluster, new GroupSubscription(members)).groupAssignment();
                    for (String member : new TreeSet<>(plan.keySet())) {
                        StringBuilder line = new StringBuilder(member);
                        // Java's lists follow the order of a hash map of topics.
                        plan.get(member).partitions().stream()
                            .sorted(Comparator.comparing(TopicPartition::topic)
                                .thenComparing(TopicPartition::partition))
                            .forEach(p -> line.append(" ").append(p));
                        System.out.println(line);
                    }
                    System.out.println("end");
                }
            }
        }
    }
}
