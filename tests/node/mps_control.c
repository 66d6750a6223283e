/* A stand-in for nvidia-cuda-mps-control with its commands: -d starts a daemon on the pipe directory, else commands come
 * on standard input. The daemon is a file in that directory; what it heard is in another, for tests to read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *in_pipe_directory(const char *name, const char *mode) {
    char path[4096];
    const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(path, sizeof path, "%s/%s", directory ? directory : "/tmp/nvidia-mps", name);
    return fopen(path, mode);
}

static int start(void) {
    const char *devices = getenv("CUDA_VISIBLE_DEVICES");
    FILE *alive = in_pipe_directory("alive", "w");
    if (!alive) return perror("cannot start"), 1;
    fprintf(alive, "%s\n", devices ? devices : "");
    return fclose(alive);
}

int main(int count, char **words) {
    char line[512];
    FILE *alive, *heard;
    if (count > 1 && !strcmp(words[1], "-d")) return start();
    if (!(alive = in_pipe_directory("alive", "r"))) return puts("Cannot find MPS control daemon process"), 1;
    fclose(alive);
    if (!(heard = in_pipe_directory("heard", "a"))) return 1;
    while (fgets(line, sizeof line, stdin)) {
        fputs(line, heard);
        if (!strncmp(line, "get_server_list", 15)) puts("");
        else if (strncmp(line, "set_default_", 12)) return puts("unknown command"), 1;
    }
    return fclose(heard);
}
