// Writes and reads the bytes of Connect's workers with Connect's own classes.
//
// In: lines `VERSION HEX VALUE`. A value is `state URL OFFSET`, then `-` or an assignment; or
// `assignment ERROR LEADER LEADER_URL OFFSET DELAY ASSIGNED REVOKED`, the tasks as `a:-1,a:0` or
// `-`. Out: for each line `HEX VALUE`: Connect's bytes of the value, and the value that Connect
// reads in the bytes of the line.

import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.connect.runtime.distributed.*;
import org.apache.kafka.connect.util.ConnectorTaskId;

public class Connect {
    static List<String> connectors(String words) {
        return pairs(words).filter(p -> p[1].equals("-1")).map(p -> p[0]).toList();
    }

    static List<ConnectorTaskId> tasks(String words) {
        return pairs(words).filter(p -> !p[1].equals("-1"))
            .map(p -> new ConnectorTaskId(p[0], Integer.parseInt(p[1]))).toList();
    }

    static Stream<String[]> pairs(String words) {
        return words.equals("-")
            ? Stream.empty() : Arrays.stream(words.split(",")).map(w -> w.split(":"));
    }

    static ExtendedAssignment assignment(short version, List<String> w) {
        return new ExtendedAssignment(
            version, Short.parseShort(w.get(1)), w.get(2), w.get(3), Long.parseLong(w.get(4)),
            connectors(w.get(6)), tasks(w.get(6)), connectors(w.get(7)), tasks(w.get(7)),
            Integer.parseInt(w.get(5)));
    }

    static ByteBuffer written(short version, List<String> w) {
        if (w.get(0).equals("assignment")) {
            ExtendedAssignment value = assignment(version, w);
            return version == 0
                ? ConnectProtocol.serializeAssignment(value)
                : IncrementalCooperativeConnectProtocol.serializeAssignment(value, version == 2);
        }
        long offset = Long.parseLong(w.get(2));
        if (version == 0) {
            return ConnectProtocol.serializeMetadata(
                new ConnectProtocol.WorkerState(w.get(1), offset));
        }
        ExtendedAssignment own =
            w.size() == 4 ? null : assignment(version, w.subList(3, w.size()));
        return IncrementalCooperativeConnectProtocol.serializeMetadata(
            new ExtendedWorkerState(w.get(1), offset, own), version == 2);
    }

    static String words(Collection<String> connectors, Collection<ConnectorTaskId> tasks) {
        String words = Stream.concat(
                connectors.stream().map(name -> new ConnectorTaskId(name, -1)), tasks.stream())
            .sorted().map(t -> t.connector() + ":" + t.task()).collect(Collectors.joining(","));
        return words.isEmpty() ? "-" : words;
    }

    static String text(ConnectProtocol.Assignment a, int delay, String revoked) {
        return String.join(" ", "assignment", "" + a.error(), a.leader(), a.leaderUrl(),
            "" + a.offset(), "" + delay, words(a.connectors(), a.tasks()), revoked);
    }

    static String text(ExtendedAssignment a) {
        return text(a, a.delay(), words(a.revokedConnectors(), a.revokedTasks()));
    }

    static String read(short version, String kind, ByteBuffer bytes) {
        if (kind.equals("assignment")) {
            return version == 0
                ? text(ConnectProtocol.deserializeAssignment(bytes), 0, "-")
                : text(IncrementalCooperativeConnectProtocol.deserializeAssignment(bytes));
        }
        if (version == 0) {
            ConnectProtocol.WorkerState state = ConnectProtocol.deserializeMetadata(bytes);
            return "state " + state.url() + " " + state.offset() + " -";
        }
        ExtendedWorkerState state =
            IncrementalCooperativeConnectProtocol.deserializeMetadata(bytes);
        boolean none = state.assignment() == ExtendedAssignment.empty();
        return "state " + state.url() + " " + state.offset() + " "
            + (none ? "-" : text(state.assignment()));
    }

    public static void main(String[] arguments) {
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            List<String> words = List.of(input.nextLine().split(" "));
            short version = Short.parseShort(words.get(0));
            List<String> value = words.subList(2, words.size());
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words.get(1)));
            System.out.println(
                HexFormat.of().formatHex(written(version, value).array())
                    + " " + read(version, value.get(0), bytes));
        }
    }
}
