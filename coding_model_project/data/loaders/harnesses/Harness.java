import java.lang.*;
import java.math.*;
import java.security.*;
import java.util.*;
import java.util.function.*;
import java.util.stream.*;
{program}
{tests}
class Main {
    public static void main(String[] arguments) throws Exception {
        try {
            PublishedTests.main(arguments);
        } catch (AssertionError error) {
            System.out.println("\na test failed");
            return;
        }
        System.out.println();
        System.in.transferTo(System.out);
        System.out.flush();
    }
}
