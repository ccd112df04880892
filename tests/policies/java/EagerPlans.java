// Prints the assignments that Connect's EagerAssignor makes for the groups on standard input.
//
// In: lines `LEADER OFFSET CONNECTOR:TASKS,... MEMBER:HEX_OF_STATE ...` (`-` without connectors);
// OFFSET is how far the leader has read. Out: for each line `MEMBER HEX_OF_ASSIGNMENT ...`.

import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.common.message.JoinGroupResponseData.JoinGroupResponseMember;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.connect.runtime.distributed.*;
import org.apache.kafka.connect.storage.*;

public class EagerPlans {
    // The assignor asks a coordinator only for its configuration; a real one needs a cluster.
    static WorkerCoordinator coordinator(ClusterConfigState read) throws Exception {
        Field unsafe = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        unsafe.setAccessible(true);
        WorkerCoordinator made = (WorkerCoordinator)
            ((sun.misc.Unsafe) unsafe.get(null)).allocateInstance(WorkerCoordinator.class);
        Field storage = WorkerCoordinator.class.getDeclaredField("configStorage");
        storage.setAccessible(true);
        storage.set(made, Proxy.newProxyInstance(
            EagerPlans.class.getClassLoader(), new Class<?>[] {ConfigBackingStore.class},
            (proxy, method, arguments) -> read));
        made.configSnapshot(read);
        return made;
    }

    static ClusterConfigState configuration(long offset, String words) {
        Map<String, Integer> counts = new HashMap<>();
        Map<String, Map<String, String>> settings = new HashMap<>();
        for (String word : words.equals("-") ? new String[0] : words.split(",")) {
            counts.put(word.split(":")[0], Integer.parseInt(word.split(":")[1]));
            settings.put(word.split(":")[0], Map.of());
        }
        return new ClusterConfigState(
            offset, null, counts, settings, Map.of(), Map.of(), Map.of(), Map.of(), Map.of(),
            Set.of(), Set.of());
    }

    public static void main(String[] arguments) throws Exception {
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            String[] words = input.nextLine().split(" ");
            List<JoinGroupResponseMember> members = new ArrayList<>();
            for (int n = 3; n < words.length; n++) {
                members.add(new JoinGroupResponseMember().setMemberId(words[n].split(":")[0])
                    .setMetadata(HexFormat.of().parseHex(words[n].split(":")[1])));
            }
            ClusterConfigState read = configuration(Long.parseLong(words[1]), words[2]);
            Map<String, ByteBuffer> plan = new EagerAssignor(new LogContext())
                .performAssignment(
                    words[0], ConnectProtocolCompatibility.EAGER, members, coordinator(read));
            System.out.println(new TreeMap<>(plan).entrySet().stream()
                .map(e -> e.getKey() + " " + HexFormat.of().formatHex(e.getValue().array()))
                .collect(Collectors.joining(" ")));
        }
    }
}
