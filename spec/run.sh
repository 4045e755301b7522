#!/bin/sh
# run: everything that can be checked, stage by stage; the last line is "N passed, N failed" over all of them. See README.md.
#
#   sh spec/run.sh                       all stages
#   sh spec/run.sh spec/lua spec/x.lua   only these spec files or folders, on the three configurations
# shellcheck disable=SC2030,SC2031 # what begin runs has a folder of its own
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd) || exit 1
cd -- "$root" || exit 1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

jobs=2
limit_s=600 # for one spec file or program: a hang is a failure, too
total_passed=0
total_failed=0
: >"$scratch/failed_stages"

# LuaJIT and OpenBLAS keep memory to the end; leaks of ours are found by the engine's counters after each spec file.
export ASAN_OPTIONS="detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="halt_on_error=1 suppressions=$root/spec/support/tsan.supp"
unset ARGAND_EAGER ARGAND_CHECK ARGAND_ISA ARGAND_THREADS LUA_PATH LUA_CPATH LUA_INIT
# What a launcher around the specs says of jobs is not for them.
for name in $(env | sed -n 's/^\(ARGAND_[A-Z_]*\|OMPI_[A-Za-z_]*\|PMI[X_][A-Za-z_]*\|SLURM_[A-Z_]*\|RANK\|WORLD_SIZE\|MASTER_[A-Z]*\|LOCAL_[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done

# stage NAME COMMAND...: runs the command, shows what it prints and counts it. A command that prints "N passed, N failed" last
# is counted so, any other as one case by its exit status.
stage() {
    name=$1
    shift
    printf '\n== %s\n' "$name"
    start=$(date +%s)
    { "$@" 2>&1; echo $? >"$scratch/status"; } | tee "$scratch/output"
    status=$(cat "$scratch/status")
    counts=$(tail -n 1 "$scratch/output" | sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\1 \2/p')
    if [ -z "$counts" ]; then
        if [ "$status" -eq 0 ]; then counts='1 0'; else counts='0 1'; fi
    fi
    passed=${counts% *}
    failed=${counts#* }
    # Ended badly without a failed case, as a crash does.
    if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    [ "$failed" -eq 0 ] || printf '   %s: %s failed\n' "$name" "$failed" >>"$scratch/failed_stages"
    printf '== %s: %d passed, %d failed, %d s\n' "$name" "$passed" "$failed" $(($(date +%s) - start))
}

# build PRESET [TARGET...]
build() {
    preset=$1
    shift
    cmake --preset "$preset" || return 1
    folder=build
    [ "$preset" = release ] || folder=build/$preset
    if [ $# -gt 0 ]; then set -- --target "$@"; fi
    cmake --build "$folder" --parallel "$jobs" "$@"
}

# begin NAME COMMAND...: runs the command beside what follows; end NAME waits for it, and shows what it printed. A shell lets what
# runs in the background ignore Ctrl-C: this is not for specs that press it.
begin() {
    rm -rf "${scratch:?}/$1"
    mkdir "$scratch/$1" || exit 1
    (
        scratch=$scratch/$1
        shift
        "$@" >"$scratch/shown" 2>&1
        echo $? >"$scratch/ended"
    ) &
}

end() {
    while [ ! -s "$scratch/$1/ended" ]; do sleep 0.2; done
    cat "$scratch/$1/shown"
    return "$(cat "$scratch/$1/ended")"
}

# run_files COMMAND OPTION FILE...: each file in a process of its own, so that a crash costs that file only. Leaves its counts in
# the file `counts`.
run_files() {
    argand=$1
    option=$2
    shift 2
    sum_passed=0
    sum_failed=0
    for file in "$@"; do
        # shellcheck disable=SC2086 # no option is no argument
        timeout -k 10 "$limit_s" "$argand" spec/support/busted.lua $option "$file" >"$scratch/spec" 2>&1 </dev/null
        spec_status=$?
        spec_counts=$(tail -n 1 "$scratch/spec" | sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\1 \2/p')
        if [ -n "$spec_counts" ]; then sed '$d' "$scratch/spec"; else cat "$scratch/spec"; fi
        [ -n "$spec_counts" ] || spec_counts='0 1'
        spec_failed=${spec_counts#* }
        if [ "$spec_status" -ne 0 ] && { [ "$spec_failed" -eq 0 ] || [ "$spec_status" -ne 1 ]; }; then
            echo "  FAIL  $file ended with status $spec_status"
            [ "$spec_failed" -gt 0 ] || spec_failed=1
        fi
        sum_passed=$((sum_passed + ${spec_counts% *}))
        sum_failed=$((sum_failed + spec_failed))
    done
    echo "$sum_passed $sum_failed" >"$scratch/counts"
}

# run_specs COMMAND OPTION FILE...: the files that mostly wait, for processes or for an answer to Ctrl-C, and beside them those that
# compute.
run_specs() {
    argand=$1
    option=$2
    shift 2
    if [ ! -x "$argand" ]; then
        echo "$argand was not built"
        return 1
    fi
    waiting=
    computing=
    for file in "$@"; do
        case $file in
        *spec/dist/* | *spec/lua/interrupt_spec.lua) waiting="$waiting $file" ;;
        *) computing="$computing $file" ;;
        esac
    done
    # shellcheck disable=SC2086 # lists of words
    begin computing run_files "$argand" "$option" $computing
    # shellcheck disable=SC2086
    run_files "$argand" "$option" $waiting
    end computing
    read -r num_passed num_failed <"$scratch/counts"
    read -r more_passed more_failed <"$scratch/computing/counts" || more_passed=0 more_failed=1
    echo "$((num_passed + more_passed)) passed, $((num_failed + more_failed)) failed"
    [ $((num_failed + more_failed)) -eq 0 ]
}

# LuaJIT has two branches: Debian 12 calls the upstream one luajit and OpenResty's luajit2, which later releases ship as luajit.
# The second is unpacked beside, never installed, since it would replace the first.
run_specs_luajit2() {
    if ! (cd "$scratch" && timeout 120 apt-get -q download luajit2 libluajit2-5.1-2 >/dev/null 2>&1); then
        echo 'skip: luajit2 cannot be downloaded here'
        echo '0 passed, 0 failed'
        return 0
    fi
    for package in "$scratch"/*.deb; do dpkg -x "$package" "$scratch/luajit2" || return 1; done
    library=$(find "$scratch/luajit2" -name 'libluajit-5.1.so.2' -exec dirname {} \; | head -n 1)
    LD_LIBRARY_PATH=$library build/argand -e 'require "table.clone"' || return 1 # that branch alone has it
    (
        LD_LIBRARY_PATH=$library
        export LD_LIBRARY_PATH
        run_specs build/argand '' "$@"
    )
}

# run_program FAILURE FILE [ARGUMENT...]: a C program that prints a line a case; those that match FAILURE failed, those with a
# case's shape passed.
run_program() {
    failure=$1
    shift
    timeout -k 10 "$limit_s" "$@" >"$scratch/program" 2>&1
    program_status=$?
    cat "$scratch/program"
    num_failed=$(grep -c "$failure" "$scratch/program")
    num_lines=$(grep -cE '^(ok  |FAIL)  |^[a-z0-9_]+ +[0-9.a-z]+ +[0-9.]+  at ' "$scratch/program")
    num_passed=$((num_lines - num_failed))
    if [ "$program_status" -ne 0 ] && [ "$num_failed" -eq 0 ]; then num_failed=1; fi
    echo "$num_passed passed, $num_failed failed"
    [ "$num_failed" -eq 0 ]
}

# A file with a warning is a failed case.
run_luacheck() {
    luacheck --no-color lua spec examples >"$scratch/luacheck"
    check_status=$?
    grep -vE '^Checking .* OK$|^$' "$scratch/luacheck"
    num_passed=$(grep -cE '^Checking .* OK$' "$scratch/luacheck")
    num_failed=$(grep -cE '^Checking .* [0-9]+ (warning|error)s?' "$scratch/luacheck")
    if [ "$check_status" -ne 0 ] && [ "$num_failed" -eq 0 ]; then num_failed=1; fi
    echo "$num_passed passed, $num_failed failed"
}

# The instruction sets of vmath_test_<isa> that this processor has.
instruction_sets() {
    echo baseline
    flags=" $(sed -n '/^flags/{s/.*: //p;q}' /proc/cpuinfo) "
    has() {
        for flag in "$@"; do
            case $flags in *" $flag "*) ;; *) return 1 ;; esac
        done
    }
    has avx2 fma f16c bmi2 && echo avx2
    has avx2 fma f16c bmi2 avx512f avx512bw avx512dq avx512vl && echo avx512
}

run_c_programs() {
    # They mostly wait.
    begin sessions run_program '^FAIL' build/spec/session_test
    begin sessions_asan run_program '^FAIL' build/dev/spec/session_test
    begin sockets run_program '^FAIL' build/spec/socket_test
    stage 'thread pool' run_program '^FAIL' build/spec/pool_test
    stage 'thread pool under ThreadSanitizer' run_program '^FAIL' build/tsan/spec/pool_test
    stage 'threads that call the engine at once' run_program '^FAIL' build/spec/threads_test
    stage 'threads under ThreadSanitizer' run_program '^FAIL' build/tsan/spec/threads_test
    stage 'collectives on the simulator' run_program '^FAIL' build/spec/collective_test
    stage 'collectives under AddressSanitizer' run_program '^FAIL' build/dev/spec/collective_test
    stage 'shared memory' run_program '^FAIL' build/spec/transport_test
    stage 'shared memory under AddressSanitizer' run_program '^FAIL' build/dev/spec/transport_test all 7
    stage 'shared memory under ThreadSanitizer' run_program '^FAIL' build/tsan/spec/transport_test threads 23
    stage 'data-parallel training' run_program '^FAIL' build/spec/ddp_test
    stage 'data-parallel training under AddressSanitizer' run_program '^FAIL' build/dev/spec/ddp_test
    stage 'data-parallel training under ThreadSanitizer' run_program '^FAIL' build/tsan/spec/ddp_test
    stage 'sockets' end sockets
    stage 'headers of messages' run_program '^FAIL' build/dev/spec/wire_fuzz 2
    stage 'collectives over ZeroMQ' run_program '^FAIL' build/spec/zmq_transport_test
    stage 'collectives over ZeroMQ under AddressSanitizer' run_program '^FAIL' build/dev/spec/zmq_transport_test
    stage 'collectives within hosts and between them' run_program '^FAIL' build/spec/hierarchy_test
    stage 'collectives within hosts and between them under AddressSanitizer' run_program '^FAIL' build/dev/spec/hierarchy_test
    stage 'groups' run_program '^FAIL' build/spec/group_test
    stage 'groups under AddressSanitizer' run_program '^FAIL' build/dev/spec/group_test
    stage 'groups under ThreadSanitizer' run_program '^FAIL' build/tsan/spec/group_test threads
    stage 'sessions' end sessions
    stage 'sessions under AddressSanitizer' end sessions_asan
    for isa in $(instruction_sets); do
        [ "$isa" = baseline ] || [ -x "build/spec/vmath_test_$isa" ] || continue
        stage "vector mathematics, $isa" run_program ' OVER$' "build/spec/vmath_test_$isa"
    done
    # AVX-512 is unknown to memcheck, which shows us a processor without it.
    stage 'C example under memcheck' valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect \
        --errors-for-leak-kinds=definite,indirect build/spec/embed_c
    stage 'training steps under memcheck' valgrind --quiet --error-exitcode=9 build/argand spec/support/memcheck.lua
    # Cached blocks are poisoned, and a chain of them is reached through one another.
    stage 'C example under AddressSanitizer' env ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=use_poisoned=1 build/dev/spec/embed_c
}

begin=$(date +%s)
if [ $# -gt 0 ]; then files=$(find "$@" -name '*_spec.lua' | sort); else files=$(find spec -name '*_spec.lua' | sort); fi
if [ -z "$files" ]; then
    echo "no *_spec.lua in: $*"
    echo '0 passed, 1 failed'
    exit 1
fi

stage 'packages and release build' sh examples/quickstart.sh --build luajit lua-busted lua-check valgrind openmpi-bin iproute2
if [ $# -eq 0 ]; then
    stage 'C programs' build release spec_programs
    stage 'luacheck' run_luacheck
fi
# Files that mostly wait for processes which are the same ones in every configuration; they run in the first, unless asked for.
once='spec/dist/faults_spec.lua spec/dist/launchers_spec.lua spec/dist/hierarchy_spec.lua spec/dist/run_spec.lua spec/bench/dist_spec.lua'
again=$files
if [ $# -eq 0 ]; then
    again=
    for file in $files; do
        case " $once " in *" $file "*) ;; *) again="$again $file" ;; esac
    done
fi
# shellcheck disable=SC2086 # a list of words, here and below
stage 'specs: release, JIT' run_specs build/argand '' $files
# shellcheck disable=SC2086
stage 'specs: release, interpreter' run_specs build/argand -joff $again
if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046
    stage 'specs: release, OpenResty branch of LuaJIT' run_specs_luajit2 \
        $(find spec/lua spec/autograd spec/nn spec/optim spec/data spec/memory -name '*_spec.lua' | sort)
fi
stage 'AddressSanitizer and UndefinedBehaviorSanitizer build' build dev all embed_c collective_test transport_test ddp_test wire_fuzz zmq_transport_test session_test hierarchy_test group_test
# shellcheck disable=SC2086
stage 'specs: sanitizers, interpreter' run_specs build/dev/argand -joff $again
if [ $# -eq 0 ]; then
    stage 'ThreadSanitizer build' build tsan pool_test threads_test transport_test ddp_test group_test
    run_c_programs
fi

printf '\n== all stages: %d s\n' $(($(date +%s) - begin))
if [ -s "$scratch/failed_stages" ]; then
    echo 'failed stages:'
    cat "$scratch/failed_stages"
fi
echo "$total_passed passed, $total_failed failed"
[ "$total_failed" -eq 0 ]
