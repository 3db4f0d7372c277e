#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the library calls of others is on a list, and nothing on it can end the host or change it.

imports.txt has the C functions, one a line, and the C++ ones that are not plain use of the standard
library or Abseil. A new import fails the test: it is to be judged, and then added to the list.
"""
import pathlib
import re
import subprocess
import sys

# Never, whoever adds them to the list.
BANNED = set("""
abort exit _exit _Exit quick_exit atexit at_quick_exit on_exit raise kill tgkill pthread_kill
printf fprintf vprintf vfprintf puts fputs fputc putc putchar putchar_unlocked fwrite perror psignal
stdout stderr stdin __printf_chk __fprintf_chk __vfprintf_chk dprintf vdprintf syslog openlog
signal sigaction sigaltstack sigprocmask bsd_signal sigset siginterrupt
setenv putenv unsetenv clearenv getenv
fork vfork clone posix_spawn posix_spawnp system popen execve execv execvp execl execlp execle
chdir fchdir chroot umask setuid setgid setsid setpgid prctl setrlimit setrlimit64 nice setpriority
setlocale uselocale srand rand random srandom drand48 tzset
sched_setaffinity pthread_setaffinity_np mlockall munlockall
dlopen dlsym dlclose pthread_atfork __register_atfork
__assert_fail __assert_perror_fail __cxa_thread_atexit __cxa_thread_atexit_impl __tls_get_addr
feenableexcept fesetround fesetenv
process_vm_readv process_vm_writev
""".split())
# But for one file each: the virtual node is loaded when a device of it is opened.
ONE_PLACE = {name: "sim_part.cc.o" for name in ("dlopen", "dlsym", "dlclose")}
# The same in C++: streams that print, process-wide handlers.
BANNED_CXX = re.compile(
    r"^(std::(cout|cerr|clog|cin|wcout|wcerr)\b|std::(set_terminate|set_unexpected|set_new_handler|"
    r"quick_exit|abort|exit|locale::global)\b|absl::.*raw_logging|.*RawLog|"
    # Not exception-safe: base/hash_map.h.
    r"absl::debian\d+::container_internal::)")
# Plain use of the C++ run-time and of Abseil's strings, status and containers.
FREE_CXX = re.compile(
    r"^(bool |void |int )?(std::|operator (new|delete)|typeinfo (for|name for) std::|vtable for (std::|__cxxabiv1::)|"
    r"typeinfo for __cxxabiv1::|VTT for std::|absl::debian\d+::|absl::lts_\d+::|absl::|simdjson::|"
    r"__gnu_cxx::|guard variable for)")


def undefined(library):
    """What the library imports; weak symbols of the compiler's start files left out."""
    out = subprocess.run(["nm", "-D", "--undefined-only", library], check=True, text=True,
                         capture_output=True).stdout
    names = {line.split()[-1].split("@")[0] for line in out.splitlines()}
    return names - {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable",
                    "__cxa_finalize"}


def users(build):
    """{symbol: objects of src/ that import it}, of the library's own; none where only it is at hand."""
    objects = [str(path) for path in sorted(pathlib.Path(build, "src").rglob("*.o"))
               if not {"sim", "cli"} & set(path.relative_to(build).parts)
               and "mainarch_sim" not in path.parent.name]
    out = subprocess.run(["nm", "-A", "--undefined-only", *objects], check=True, text=True,
                         capture_output=True).stdout if objects else ""
    found = {}
    for line in out.splitlines():
        where, _, rest = line.partition(":")
        found.setdefault(rest.split()[-1], set()).add(pathlib.Path(where).name)
    return found


def demangle(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), check=True, text=True,
                         capture_output=True).stdout
    return dict(zip(names, out.splitlines()))


def main():
    root, build, library = sys.argv[1:]
    imports, found = undefined(library), users(build)
    listed = {line.split()[0] for line in
              (pathlib.Path(root) / "tests/abi/imports.txt").read_text().splitlines()
              if line.strip() and not line.startswith("#")}
    plain = demangle(sorted(imports))
    bad, used = 0, set()
    for name in sorted(imports):
        base, text = name, plain[name]
        files = ", ".join(sorted(found.get(name, {"?"}))[:3])
        allowed = ONE_PLACE.get(base)
        if allowed and all(user.endswith(allowed) for user in found.get(name, ())):
            used.add(base)
        elif base in BANNED or BANNED_CXX.match(text):
            print(f"banned: {text} ({files})")
            bad += 1
        elif base in listed:
            used.add(base)
        elif name.startswith("_Z") and FREE_CXX.match(text):
            continue
        else:
            print(f"not in imports.txt: {text} ({files})")
            bad += 1
    for name in sorted(listed & BANNED - set(ONE_PLACE)):
        print(f"banned, and yet listed: {name}")
        bad += 1
    print(f"{len(imports)} imports, {len(used)} of {len(listed)} listed "
          f"ones used, {bad} wrong")
    sys.exit(1 if bad or not imports else 0)


if __name__ == "__main__":
    main()
