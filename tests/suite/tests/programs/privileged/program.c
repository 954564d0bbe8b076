/* A program that loads a PKCS#11 module and shows its first token. */
#include <dlfcn.h>
#include <stdio.h>

struct functions {
    unsigned char version[2];
    unsigned long (*call[68])();
};

enum { INITIALIZE = 0, GET_SLOT_LIST = 4, GET_TOKEN_INFO = 6 };

int main(int argc, char **argv)
{
    void *module = argc == 2 ? dlopen(argv[1], RTLD_NOW) : 0;
    if (!module) {
        printf("%s\n", dlerror());
        return 2;
    }
    unsigned long (*get)(struct functions **) = dlsym(module, "C_GetFunctionList");
    struct functions *functions;
    unsigned long slot, count = 1, failed = get(&functions);
    unsigned char info[256] = "";
    if (!failed)
        failed = functions->call[INITIALIZE]((void *)0);
    if (!failed)
        failed = functions->call[GET_SLOT_LIST]((unsigned char)1, &slot, &count);
    if (!failed)
        failed = functions->call[GET_TOKEN_INFO](slot, info);
    if (failed) {
        printf("failed: 0x%lx\n", failed);
        return 1;
    }
    printf("token: %.32s\n", info);
    return 0;
}
