// Measures Kafka's own CooperativeStickyAssignor for the group on standard input.
//
// In: the lines `topic NAME RACKS,OF,REPLICAS ...` (one word for each partition, `-` without racks),
// `member ID RACK TOPIC,...` (rack `-` for none) and the same with `more` for the member that joins
// later. Out: `STATE CPU_MS WALL_MS MOVES ROUNDS` for the states `full` and `more`. Rounds are
// repeated until they get no faster; the least CPU time and the least time of all rounds count. CPU time
// is that of the whole process, with garbage collection and compilation. Java counts it in ticks of
// 10 ms, so a round consists of so many plans that it takes 0.2 s; its times are those of one plan.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.common.*;

public class Plans {
    static final int WINDOW = 8;
    static final double GAIN = 0.98;
    static final long ROUND_NS = 200_000_000;

    record Member(String id, Optional<String> rack, List<String> topics) {}

    static final Map<String, Node> nodes = new HashMap<>();
    static final Map<String, List<PartitionInfo>> partitions = new HashMap<>();

    static void topic(String[] words) {
        List<PartitionInfo> all = new ArrayList<>();
        for (int n = 0; n < words.length - 2; n++) {
            String racks = words[n + 2];
            Node[] there = Arrays.stream(racks.split(",")).map(rack -> nodes.computeIfAbsent(rack,
                name -> new Node(nodes.size(), "host", 9092, name.equals("-") ? null : name)))
                .toArray(Node[]::new);
            all.add(new PartitionInfo(words[1], n, there[0], there, there));
        }
        partitions.put(words[1], all);
    }

    static Member member(String[] words) {
        Optional<String> rack = words[2].equals("-") ? Optional.empty() : Optional.of(words[2]);
        return new Member(words[1], rack, List.of(words[3].split(",")));
    }

    static Map<String, Subscription> subscriptions(
            List<Member> members, Map<String, List<TopicPartition>> owned) {
        Map<String, Subscription> all = new HashMap<>();
        for (Member member : members) {
            List<TopicPartition> mine = owned.get(member.id());
            all.put(member.id(), new Subscription(member.topics(), null,
                mine == null ? List.of() : mine, mine == null ? -1 : 1, member.rack()));
        }
        return all;
    }

    static Map<String, List<TopicPartition>> measure(
            String state, List<Member> members, Map<String, List<TopicPartition>> owned, double seconds) {
        var process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        Map<String, List<TopicPartition>> plan = Map.of();
        long leastCpu = Long.MAX_VALUE, leastWall = Long.MAX_VALUE, ends = System.nanoTime() + (long) (seconds * 1e9);
        int rounds = 0, since = 0, plans = 1;
        while (rounds == 0 || since < WINDOW && System.nanoTime() < ends) {
            Map<String, Subscription> group = subscriptions(members, owned);
            System.gc();
            long cpu = process.getProcessCpuTime(), wall = System.nanoTime();
            for (int n = 0; n < plans; n++) {
                plan = new CooperativeStickyAssignor().assignPartitions(partitions, group);
            }
            wall = (System.nanoTime() - wall) / plans;
            cpu = (process.getProcessCpuTime() - cpu) / plans;
            // The first round is cold, and only one plan.
            since = rounds == 0 || wall < leastWall * GAIN ? 0 : since + 1;
            leastCpu = rounds == 1 ? cpu : Math.min(leastCpu, cpu);
            leastWall = Math.min(leastWall, wall);
            plans = (int) Math.max(1, ROUND_NS / Math.max(1, wall));
            rounds++;
        }
        long moves = 0;
        for (String member : owned.keySet()) {
            Set<TopicPartition> kept = new HashSet<>(plan.get(member));
            moves += owned.get(member).stream().filter(mine -> !kept.contains(mine)).count();
        }
        System.out.printf(Locale.ROOT, "%s %.2f %.2f %d %d%n",
            state, leastCpu / 1e6, leastWall / 1e6, moves, rounds);
        return plan;
    }

    public static void main(String[] arguments) {
        double seconds = Double.parseDouble(arguments[0]);
        List<Member> members = new ArrayList<>(), more = new ArrayList<>();
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            String[] words = input.nextLine().split(" ");
            switch (words[0]) {
                case "topic" -> topic(words);
                case "member" -> members.add(member(words));
                case "more" -> more.add(member(words));
                default -> throw new IllegalArgumentException(words[0]);
            }
        }
        var plan = measure("full", members, Map.of(), seconds);
        more.addAll(0, members);
        measure("more", more, plan, seconds);
    }
}
