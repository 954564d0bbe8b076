import java.nio.file.*;
import java.security.*;
import java.security.cert.Certificate;
import java.util.*;
import java.util.concurrent.*;

/** Lists the key store of a PKCS#11 module and signs with every key in it from ten threads. */
public class SignWithThreads {
    static final int THREADS = 10;
    static final int SIGNATURES = 25;

    public static void main(String[] args) throws Exception {
        Provider provider = Security.getProvider("SunPKCS11").configure(args[0]);
        Security.addProvider(provider);
        char[] pin = Files.readString(Path.of(args[1])).toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS11", provider);
        store.load(null, pin);
        List<String> names = new ArrayList<>();
        for (String alias : Collections.list(store.aliases())) {
            if (store.isKeyEntry(alias) && store.getKey(alias, null) instanceof PrivateKey) {
                names.add(alias);
            }
        }
        Collections.sort(names);
        System.out.println("entries: " + names);

        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        List<Future<Integer>> all = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            all.add(pool.submit(() -> {
                int valid = 0;
                for (String name : names) {
                    valid += sign(provider, (PrivateKey) store.getKey(name, null), store.getCertificate(name));
                }
                return valid;
            }));
        }
        int valid = 0;
        for (Future<Integer> one : all) {
            valid += one.get();
        }
        pool.shutdown();
        System.out.println(valid + " signatures by " + THREADS + " threads, all valid");
    }

    /** Signs by the token and verifies with Java's own code. */
    static int sign(Provider provider, PrivateKey key, Certificate certificate) throws Exception {
        String algorithm = key.getAlgorithm().equals("RSA") ? "SHA256withRSA" : "SHA256withECDSA";
        Signature signer = Signature.getInstance(algorithm, provider);
        String own = key.getAlgorithm().equals("RSA") ? "SunRsaSign" : "SunEC";
        Signature verifier = Signature.getInstance(algorithm, own);
        int valid = 0;
        for (int i = 0; i < SIGNATURES; i++) {
            byte[] data = ("message " + i).getBytes();
            signer.initSign(key);
            signer.update(data);
            byte[] signature = signer.sign();
            verifier.initVerify(certificate);
            verifier.update(data);
            if (!verifier.verify(signature)) {
                throw new SignatureException("not valid");
            }
            valid++;
        }
        return valid;
    }
}
