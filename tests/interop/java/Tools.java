import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's tools one after the other: words in one line, then one line of status and output. */
public class Tools {
    private static final class Ended extends RuntimeException {}

    /** The status of the tool's first exit; null before. */
    private static Integer ended;

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            // A tool may catch this exception, print it, and exit again.
            if (ended == null) {
                ended = status;
                print(OutputStream.nullOutputStream());
            }
            throw new Ended();
        });
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            print(output);
            ended = null;
            int status = run(line.split("\t"));
            answers.println(status + " " + Base64.getEncoder().encodeToString(output.toByteArray()));
            answers.flush();
        }
    }

    private static void print(OutputStream output) {
        PrintStream stream = new PrintStream(output, true, StandardCharsets.UTF_8);
        System.setOut(stream);
        System.setErr(stream);
    }

    private static int run(String[] words) throws Exception {
        Object arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
        } catch (InvocationTargetException failure) {
            if (ended == null) {
                failure.getCause().printStackTrace();
                return 1;
            }
        }
        return ended == null ? 0 : ended;
    }
}
