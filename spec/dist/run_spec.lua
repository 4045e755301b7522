--- run: `argand run` for real: exit codes, whose fault it was, whole lines, no process left behind, restarts, other hosts.
local core = require "argand.core"
local cases = require "support.cases"
local launcher = require("support.launcher").new()
local terminal = require "support.terminal"
local command = terminal.this_command()
local process = core.process

local LIMIT_S = 20 -- of what goes on after the launcher's end
local SIGINT, SIGKILL, SIGTERM = 2, 9, 15

local folder = launcher.folder

local function read_file(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

-- The library is there as in a script of a user's. print is not buffered.
local function script(name, text)
  return launcher:write_file(name, [[
    local core, ffi = require "argand.core", require "ffi"
    local process, rank = core.process, tonumber(os.getenv "ARGAND_RANK")
    ffi.cdef "void *signal(int number, intptr_t handler); int getpid(void);"
    local function ignore(number) ffi.C.signal(number, 1) end
    local function say(...) io.stdout:write(table.concat({...}, " "), "\n") io.stdout:flush() end
    local function mark(name) io.open(name .. "-" .. os.getenv "ARGAND_JOB", "w"):close() end
    local function await_mark(name)
      while not io.open(name .. "-" .. os.getenv "ARGAND_JOB") do core.sleep(0.01) end
    end
    ]] .. text)
end

local function start(args) return launcher:start(args) end

local function run(args, changes, cwd) return launcher:run(args, {env = changes, cwd = cwd}) end

-- A zombie that nobody reaps has ended as well.
local function is_running(pid)
  local file = io.open(("/proc/%s/stat"):format(pid))
  if not file then return false end
  local state = file:read("*a"):match "^.*%) (%u)"
  file:close()
  return state ~= "Z" and state ~= "X" and state ~= nil
end

-- All numbers behind "pid " in the output, which have to be `count`; waits until none of them runs.
local function assert_ended(text, count)
  local pids = {}
  for pid in text:gmatch "pid (%d+)\n" do pids[#pids + 1] = pid end
  assert.equal(count, #pids, text)
  local deadline = core.now() + LIMIT_S
  for _, pid in ipairs(pids) do
    while is_running(pid) do
      assert(core.now() < deadline, "process " .. pid .. " was left behind")
      process.poll({}, nil, 0.01)
    end
  end
end

local function assert_contains(text, part) assert(text:find(part, 1, true), ("%q is not in: %s"):format(part, text)) end

local waits = script("waits.lua", [[
  ffi.cdef "int poll(void *fds, unsigned long count, int timeout_ms);"
  say("pid " .. ffi.C.getpid())
  if arg[1] == "deaf" then ignore(2) ignore(15) end
  if arg[1] == "deaf" then say "deaf" end
  local deadline = core.now() + 60
  while core.now() < deadline do ffi.C.poll(nil, 0, 100) end -- a wait that signals do not end
]])

describe("the exit code", function()
  local ends = script("ends.lua", [[
    process.status "epoch 1, step 5"
    local how, value = (arg[rank + 1] or "sleep 30"):match "^(%a+) ?(%S*)$"
    -- Who fails later is there before the other one blames it.
    if how == "blames" and not table.concat(arg, " "):find "sleep" then await_mark "ready" end
    if how == "later" or how == "fails" then mark "ready" end
    if how == "exit" then os.exit(tonumber(value)) end
    if how == "kill" then process.kill(ffi.C.getpid(), tonumber(value)) end
    if how == "error" then error(value) end
    if how == "blames" then process.status("rank 1 failed", "peer") os.exit(4) end
    if how == "fails" then process.status("boom", "fail") core.sleep(30) end
    if how == "later" then core.sleep(0.2) os.exit(tonumber(value)) end
    if how == "sleep" then core.sleep(tonumber(value)) end
  ]])

  it("is that of the rank that failed, which is named", function()
    local check = cases.begin()
    local list = {
      {"all well", {"exit 0", "exit 0"}, 0, ""},
      {"an early end is no failure", {"exit 0", "sleep 0.2", "later 0"}, 0, ""},
      {"a code", {"sleep 30", "exit 7", "sleep 30"}, 7, "rank 1 (host localhost, pid %d+) exited with code 7 at: epoch 1, step 5\n"},
      {"an error", {"sleep 30", "sleep 30", "error oh"}, 1, "rank 2 (host localhost, pid %d+) exited with code 1 at: epoch 1, step 5\n"},
      {"a signal", {"kill 9", "sleep 30"}, 137, "rank 0 (host localhost, pid %d+) was killed by signal 9 (SIGKILL) at: epoch 1, step 5\n"},
      {"another signal", {"sleep 30", "kill 10"}, 138, "rank 1 (host localhost, pid %d+) was killed by signal 10 (SIGUSR1) at: epoch 1, step 5\n"},
      {"of one rank", {"exit 5"}, 5, "rank 0 (host localhost, pid %d+) exited with code 5 at: epoch 1, step 5\n"},
      {"a failure after an early end", {"exit 0", "later 3"}, 3, "rank 1 (host localhost, pid %d+) exited with code 3 at: epoch 1, step 5\n"},
      {"who blames another one waits for its end", {"blames", "later 9"}, 9, "rank 1 (host localhost, pid %d+) exited with code 9 at: epoch 1, step 5\n"},
      {"who has said that it fails is to blame", {"blames", "fails"}, 1, "rank 1 (host localhost, pid %d+) failed at: epoch 1, step 5\n"},
      {"nobody else fails", {"blames", "sleep 30"}, 4, "rank 0 (host localhost, pid %d+) exited with code 4 at: epoch 1, step 5\n"},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local code, _, err = run {"-n", tostring(#case[2]), ends, unpack(case[2])}
        assert.equal(case[3], code, err)
        if case[4] == "" then return assert.equal("", err) end
        local pattern = case[4]:gsub("[()]", "%%%0")
        assert(("\n" .. err):find("\nargand run: " .. pattern), err)
        assert.equal(1, select(2, err:gsub("argand run: ", "")))
      end)
    end
    check.done()
  end)

  it("is 2 for a wrong option, 1 for what is not there", function()
    local check = cases.begin()
    local list = {
      {{"--hots", "a", ends}, 2, "unknown option --hots; did you mean --hosts?"}, {{"--max-restart=1", ends}, 2, "did you mean --max-restarts?"},
      {{}, 2, "no script was given"}, {{"-n", "0", ends}, 2, "-n: expected a whole number from 1 to 65536, got '0'"}, {{"-n"}, 2, "-n needs a value"},
      {{"-n", "two", ends}, 2, "got 'two'"}, {{"--secure=1", ends}, 2, "--secure takes no value"}, {{"--bind=2", ends}, 2, "--bind takes no value"}, {{"--transport", "rdma", ends}, 2, "expected auto, shm, ipc or tcp"},
      {{"--timeout", "0", ends}, 2, "expected seconds above 0"}, {{"--hosts", "a", "--hostfile", "b", ends}, 2, "exclude each other"},
      {{"-n", "2", "--min-n", "3", ends}, 2, "--min-n 3 is more than -n 2"}, {{"--net-test", ends}, 2, "--net-test runs a script of its own"},
      {{"nosuch.lua"}, 1, "no script: nosuch.lua: No such file"}, {{"."}, 1, "no script: .: Is a directory"},
      {{"--hosts", "a:2,b", "-n", "4", ends}, 1, "-n 4 is more than the 3 slots of 2 hosts"}, {{"--hosts", "a:x", ends}, 1, "position 2"},
      {{"--hostfile", "nosuch", ends}, 1, "nosuch: No such file"}, {{"--key", "nosuch", ends}, 1, "nosuch: No such file"},
      {{"--log-dir", ends .. "/x", ends}, 1, "ends.lua"},
    }
    for _, case in ipairs(list) do
      check(case[3], function()
        local code, out, err = run(case[1])
        assert.equal(case[2], code, err)
        assert.equal("", out)
        assert.equal("argand: ", err:sub(1, 8))
        assert_contains(err, case[3])
      end)
    end
    check.done()
    local code, out = run {"--help"}
    assert.equal(0, code)
    assert_contains(out, "--max-restarts")
  end)
end)

describe("the output", function()
  local writes = script("writes.lua", [[
    io.stdout:setvbuf "no"
    if arg[1] == "pieces" then
      for i = 1, 300 do
        io.write("line ")
        io.write(("%d of rank %d"):format(i, rank), "\nhalf ", i, " ")
        io.write("of ", rank, "\n")
      end
    elseif arg[1] == "long" then
      io.write(string.char(97 + rank):rep(2 ^ 20), "\n")
    elseif arg[1] == "streams" then
      io.stdout:write("out ", rank, "\n\nzero\0byte")
      io.stderr:write("err ", rank)
    end
  ]])

  it("comes in whole lines behind the rank", function()
    local code, out, err = run {"-n", "4", writes, "pieces"}
    assert.same({0, ""}, {code, err})
    local counts = {[0] = 0, 0, 0, 0}
    for line in out:gmatch "([^\n]*)\n" do
      local rank, text = line:match "^%[(%d)%] (.*)$"
      assert(rank, line)
      rank = tonumber(rank)
      local i = math.floor(counts[rank] / 2) + 1
      assert.equal(counts[rank] % 2 == 0 and ("line %d of rank %d"):format(i, rank) or ("half %d of %d"):format(i, rank), text)
      counts[rank] = counts[rank] + 1
    end
    assert.same({[0] = 600, 600, 600, 600}, counts)
  end)

  it("may have lines of a megabyte", function()
    local code, out = run {"-n", "3", writes, "long"}
    assert.equal(0, code)
    local found = {}
    for line in out:gmatch "[^\n]*\n" do found[#found + 1] = line end
    table.sort(found)
    assert.equal(3, #found)
    for i, line in ipairs(found) do assert(line == ("[%d] "):format(i - 1) .. string.char(96 + i):rep(2 ^ 20) .. "\n", #line) end
  end)

  it("keeps the streams apart, ends a last line that is not whole, and says nothing of the rank when told so", function()
    local code, out, err = run {"-n", "1", writes, "streams"}
    assert.same({0, "out 0\n\nzero\0byte", "err 0"}, {code, out, err})
    code, out, err = run {"-n", "1", "--log-dir", "logs/deep", writes, "streams"}
    assert.same({0, "out 0\n\nzero\0byte\n", "err 0\n"}, {code, out, err})
    code, out, err = run {"-n", "2", writes, "streams"}
    assert.equal(0, code)
    for rank = 0, 1 do
      local lines = {}
      for line in out:gmatch(("%%[%d%%] [^\n]*\n"):format(rank)) do lines[#lines + 1] = line end
      assert.equal(("[%d] out %d\n[%d] \n[%d] zero\0byte\n"):format(rank, rank, rank, rank), table.concat(lines))
    end
    assert_contains(err, "[1] err 1\n")
    code, out, err = run {"-n", "2", "--no-prefix", writes, "streams"}
    assert.equal(0, code)
    local lines = {}
    for line in out:gmatch "[^\n]*\n" do lines[#lines + 1] = line end
    table.sort(lines)
    assert.equal("\n\nout 0\nout 1\nzero\0byte\nzero\0byte\n", table.concat(lines))
    assert(err == "err 0\nerr 1\n" or err == "err 1\nerr 0\n", err)
  end)

  it("is shown before the rank ends, without a flush", function()
    local prints = script("prints.lua", "print('pid ' .. ffi.C.getpid()) core.sleep(60)")
    local child = start {"-n", "2", prints}
    child:read(function() return child.out:find "pid.*pid %d+\n" end)
    process.kill(child.pid, SIGTERM)
    assert.equal(143, child:finish())
    assert_ended(child.out, 2)
  end)

  it("goes to files, too", function()
    local code, out = run {"-n", "2", "--log-dir", "logs/deep", writes, "streams"}
    assert.equal(0, code)
    assert_contains(out, "[0] out 0\n")
    for rank = 0, 1 do
      assert.equal(("out %d\n\nzero\0byte"):format(rank), read_file(("%s/logs/deep/rank%d.out"):format(folder, rank)))
      assert.equal(("err %d"):format(rank), read_file(("%s/logs/deep/rank%d.err"):format(folder, rank)))
    end
  end)

  it("ends the job when nobody reads it", function()
    local forever = script("forever.lua", "io.stderr:write('pid ', ffi.C.getpid(), '\\n') while true do say 'more' end")
    local child = start {"-n", "2", forever}
    child:read(function() return #child.out > 1000 and child.err:find "pid.*pid %d+\n" end)
    process.close(child.stdout)
    child.stdout = nil
    assert.equal(128 + 13, child:finish())
    assert_ended(child.err, 2)
  end)
end)

describe("the environment of a rank", function()
  local shows = script("shows.lua", [[
    local list = {}
    for _, entry in ipairs(process.environment()) do
      if entry:find "^[%u_]*RANK=" or entry:find "SIZE=" or entry:find "^ARGAND_" or entry:find "_NUM_THREADS=" or entry:find "^MASTER" then
        list[#list + 1] = entry
      end
    end
    list[#list + 1] = "args=" .. table.concat(arg, "|")
    say(table.concat(list, "\n"))
  ]])

  local function shown(args, changes, processors)
    local code, out, err = launcher:run(args, {env = changes, processors = processors})
    assert.equal(0, code, err)
    local ranks = {}
    for rank, name, value in out:gmatch "%[(%d)%] ([%w_]+)=([^\n]*)" do
      ranks[tonumber(rank)] = ranks[tonumber(rank)] or {}
      ranks[tonumber(rank)][name] = value
    end
    return ranks
  end

  local clean = {ARGAND_THREADS = false, OPENBLAS_NUM_THREADS = false, OMP_NUM_THREADS = false, ARGAND_TIMEOUT = false}

  it("says who it is and where the others are", function()
    local ranks = shown({"-n", "3", "--timeout", "7.5", "--transport", "tcp", shows, "a b", "--flag"}, clean)
    local job = ranks[0].ARGAND_JOB
    assert(job:find "^%x+$" and #job == 32, job)
    for rank = 0, 2 do
      local r, number = ranks[rank], tostring(rank)
      local expected = {
        ARGAND_RANK = number, ARGAND_WORLD_SIZE = "3", ARGAND_LOCAL_RANK = number, ARGAND_LOCAL_WORLD_SIZE = "3", ARGAND_NODE_RANK = "0",
        ARGAND_NODES = "1", ARGAND_JOB = job, ARGAND_EPOCH = "0", ARGAND_RESTART = "0", ARGAND_COORDINATOR = "ipc://@argand-" .. job,
        ARGAND_TIMEOUT = "7.5", ARGAND_TRANSPORT = "tcp", RANK = number, WORLD_SIZE = "3", LOCAL_RANK = number, LOCAL_WORLD_SIZE = "3",
        MASTER_ADDR = "127.0.0.1", args = "a b|--flag",
      }
      for name, value in pairs(expected) do assert.equal(value, r[name], name) end
      assert(tonumber(r.MASTER_PORT) >= 20000 and tonumber(r.MASTER_PORT) < 30000)
      assert(r.ARGAND_STATUS_FD:find "^%d+:%d+$")
      assert.is_nil(r.ARGAND_KEY_FILE)
    end
    assert.not_equal(job, shown {"-n", "2", shows}[0].ARGAND_JOB)
  end)

  it("divides the processors, unless told otherwise", function()
    local own = process.processors()
    local few = {own[1], own[2], own[3]} -- more ranks than processors are a few ranks, on a large machine, too
    local names = {"ARGAND_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}
    local function threads(args, changes)
      local r, list = shown(args, changes, few)[1], {}
      for i, name in ipairs(names) do list[i] = r[name] end
      return list
    end
    local share = tostring(math.max(1, math.floor(#few / 2)))
    assert.same({share, share, share}, threads({"-n", "2", shows}, clean))
    assert.same({"1", "1", "1"}, threads({"-n", tostring(#few + 1), shows}, clean))
    assert.same({"3", "3", "3"}, threads({"-n2", "--threads=3", shows}, clean))
    assert.same({"5", share, "7"}, threads({"-n", "2", shows}, {ARGAND_THREADS = "5", OPENBLAS_NUM_THREADS = false, OMP_NUM_THREADS = "7"}))
    assert.same({"4", "4", "7"}, threads({"-n", "2", "--threads", "4", shows}, {ARGAND_THREADS = "5", OPENBLAS_NUM_THREADS = false, OMP_NUM_THREADS = "7"}))
  end)

  it("is understood by what reads it", function()
    local reads = script("reads.lua", [[
      local e = assert(require("argand.dist.environment").detect())
      say(e.source, e.rank, e.size, e.local_rank, e.local_size, e.epoch, tostring(e.note))
    ]])
    local code, out = run {"-n", "2", reads}
    assert.equal(0, code)
    assert_contains(out, "[1] argand 1 2 1 2 0 nil\n")
  end)

  it("keeps the status socket from the rank's own children", function()
    local asks = script("asks.lua", [[
      local asked = " '" .. arg[1] .. "' -e 'print(require(\"argand.core\").process.status(\"not mine\"))'"
      os.execute("ARGAND_STATUS_FD=${ARGAND_STATUS_FD%%:*}:1" .. asked)
      process.status "mine"
      os.execute(asked)
      os.exit(3)
    ]])
    local code, out, err = run {"-n", "1", asks, command}
    assert.equal(3, code)
    assert.equal("false\nfalse\n", out)
    assert_contains(err, "at: mine\n")
  end)

  it("is printed by --dry-run, with the command, and nothing is started", function()
    local quote_all = require("argand.run.plan").quote_all
    local touches = script("touches.lua", "io.open('touched', 'w'):close()")
    local code, out, err = run({"-n", "2", "--dry-run", "--secure", touches, "it's", "a b", "$HOME"}, clean)
    assert.same({0, ""}, {code, err})
    assert_contains(out, "# rank 1 on localhost\nenv ARGAND_COORDINATOR=ipc://@argand-")
    assert_contains(out, " ARGAND_RANK=1 ")
    assert_contains(out, " OMP_NUM_THREADS=")
    assert_contains(out, " 'ARGAND_KEY_FILE=(made at the start)'")
    assert_contains(out, ("%s 'it'\\''s' 'a b' '$HOME'\n"):format(quote_all {command, touches}))
    assert.is_nil(io.open(folder .. "/touched"))
    code, out = run {"--hosts", "a:2,me@b:2", "-n", "3", "--port", "29999", "--dry-run", "--env", "X=1 2", touches}
    assert.equal(0, code)
    assert_contains(out, "ARGAND_COORDINATOR=tcp://a:29999 ")
    assert_contains(out, "# host me@b: ssh -o BatchMode=yes ")
    assert_contains(out, "'X=1 2'")
    assert.equal(3, select(2, out:gsub("# rank %d on ", "")))
  end)
end)

describe("no process is left behind", function()
  it("by a launcher that is killed", function()
    -- the rank's own child is in its group
    local parent = script("parent.lua", "os.execute 'sleep 60 & echo pid $!' say('pid ' .. ffi.C.getpid()) core.sleep(60)")
    local child = start {"-n", "2", parent}
    child:read(function() return select(2, child.out:gsub("pid %d+\n", "")) == 4 end)
    process.kill(child.pid, SIGKILL)
    assert.equal(-SIGKILL, child:finish())
    assert_ended(child.out, 4)
  end)

  -- The launcher, too, finds by it what ranks have left behind.
  local has_children = io.open(("/proc/self/task/%d/children"):format(process.self().pid)) ~= nil

  it("by a launcher that is killed after its guard", function()
    if not has_children then return pending "this kernel does not list the children of a process" end
    local child = start {"-n", "2", waits}
    child:read(function() return select(2, child.out:gsub("pid %d+\n", "")) == 2 end)
    local num_guards = 0
    for pid in read_file(("/proc/%d/task/%d/children"):format(child.pid, child.pid)):gmatch "%d+" do
      if not child.out:find("pid " .. pid .. "\n", 1, true) then
        num_guards = num_guards + 1
        process.kill(tonumber(pid), SIGKILL)
      end
    end
    assert.equal(1, num_guards)
    process.kill(child.pid, SIGKILL)
    assert.equal(-SIGKILL, child:finish())
    assert_ended(child.out, 2)
  end)

  it("by a rank that ends, even in a session of its own", function()
    if not has_children then return pending "this kernel does not list the children of a process" end
    local parent = script("leaves.lua", "os.execute 'setsid sleep 60 >/dev/null 2>&1 & echo pid $!' say('pid ' .. ffi.C.getpid())")
    local code, out = run {"-n", "2", parent}
    assert.equal(0, code)
    assert_ended(out, 4)
  end)

  it("by signals, and deaf ranks are killed", function()
    local check = cases.begin()
    local list = {
      {"SIGTERM", {SIGTERM}, {"-n", "2", waits}, 143}, {"SIGINT", {SIGINT}, {"-n", "2", waits}, 130},
      {"SIGTERM, deaf", {SIGTERM}, {"-n", "2", "--grace", "0.1", waits, "deaf"}, 143},
      {"SIGINT twice, deaf", {SIGINT, SIGINT}, {"-n", "2", "--grace", "60", waits, "deaf"}, 130},
    }
    -- Under nohup it is ignored, and stays so.
    local status = io.open "/proc/self/status"
    local ignored = status:read("*a"):match "SigIgn:%s*%x*(%x)\n"
    status:close()
    if tonumber(ignored, 16) % 2 == 0 then list[#list + 1] = {"SIGHUP", {1}, {"-n", "2", waits}, 129} end
    for _, case in ipairs(list) do
      check(case[1], function()
        local child = start(case[3])
        local pattern = case[3][#case[3]] == "deaf" and "deaf.*deaf\n" or "pid.*pid %d+\n"
        child:read(function() return child.out:find(pattern) end)
        for i, number in ipairs(case[2]) do
          process.kill(child.pid, number)
          if i == 1 then child:expect "the ranks end" end
        end
        assert.equal(case[4], child:finish(), child.err)
        assert_ended(child.out, 2)
      end)
    end
    check.done()
  end)

  it("by Ctrl-C at a terminal", function()
    if not terminal.is_available() then return pending "needs a pseudo-terminal" end
    local t = terminal.open {command, "run", "-n", "2", waits}
    local first, second = t:expect "pid (%d+)\r\n.*pid (%d+)\r\n"
    t:send(terminal.CTRL_C)
    t:expect "the ranks end"
    assert.equal(130, t:close())
    assert_ended(("pid %s\npid %s\n"):format(first, second), 2)
  end)

  it("by a failure with ranks that ignore SIGTERM", function()
    local mixed = script("mixed.lua", [[
      say("pid " .. ffi.C.getpid())
      if rank == 1 then
        await_mark "deaf0"
        await_mark "deaf2"
        os.exit(3)
      end
      ignore(15)
      mark("deaf" .. rank)
      core.sleep(60)
    ]])
    local code, out = run {"-n", "3", "--grace", "0.2", mixed}
    assert.equal(3, code)
    assert_ended(out, 3)
  end)
end)

describe("a restart", function()
  local tries = script("tries.lua", [[
    say("epoch", os.getenv "ARGAND_EPOCH", "restart", os.getenv "ARGAND_RESTART", "of", os.getenv "ARGAND_WORLD_SIZE", os.getenv "ARGAND_JOB")
    if rank == 1 and tonumber(os.getenv "ARGAND_RESTART") < tonumber(arg[1]) then os.exit(6) end
  ]])

  it("comes after a failure, with the next epoch", function()
    local code, out, err = run {"-n", "2", "--max-restarts", "3", tries, "2"}
    assert.equal(0, code)
    assert_contains(err, "argand run: restart 1 of 3 with 2 ranks\n")
    assert_contains(err, "argand run: restart 2 of 3 with 2 ranks\n")
    assert.is_nil(err:find("restart 3", 1, true))
    assert(out:find "%[0%] epoch 2 restart 2 of 2 %x+\n", out)
    local jobs = {}
    for job in out:gmatch "of 2 (%x+)\n" do jobs[job] = true end
    local first = next(jobs)
    assert.is_nil(next(jobs, first))
  end)

  it("comes no more often than was asked for", function()
    local code, _, err = run {"-n", "2", "--max-restarts", "1", tries, "9"}
    assert.equal(6, code)
    assert.equal(2, select(2, err:gsub("exited with code 6", "")))
    code, _, err = run {"-n", "2", tries, "9"}
    assert.equal(6, code)
    assert.equal(1, select(2, err:gsub("exited with code 6", "")))
  end)
end)

describe("ranks that cannot be started", function()
  local ends = script("small.lua", "say('of', os.getenv 'ARGAND_WORLD_SIZE') if arg[1] then core.sleep(30) end")

  -- Few descriptors are allowed, so that some of 12 ranks start.
  local function run_limited(args) return launcher:run(args, {wrapper = {"sh", "-c", 'ulimit -n 24; exec "$@"', "sh"}}) end

  it("end the job, or are left out when that was allowed", function()
    local code, _, err = run_limited {"-n", "12", ends, "wait"}
    assert.equal(1, code)
    assert(err:find "^argand run: rank %d+ %(host localhost%) could not be started: .*: Too many open files\n$", err)
    local out
    code, out, err = run_limited {"-n", "12", "--max-restarts", "1", "--min-n", "2", ends}
    assert.equal(0, code, err)
    local size = tonumber(err:match "restart 1 of 1 with (%d+) ranks\n")
    assert(size >= 2 and size < 12, err)
    assert_contains(out, ("[%d] of %d\n"):format(size - 1, size))
  end)
end)

describe("other hosts", function()
  local keyfile = launcher:write_file("key file", "public 1\nsecret 2\n")
  -- Does what ssh does with its arguments; a host "gone" cannot be reached.
  local ssh = launcher:write_program("fake_ssh", [[
#!/bin/sh
host=$1
shift
if [ "$host" = gone ]; then echo "ssh: no route to $host" >&2; exit 255; fi
echo "Welcome to $host"
FAKE_HOST=$host
export FAKE_HOST
unset CARRIED
cd /
sh -c "$*"
]])
  local odd_folder = folder .. "/it's a $folder"
  assert(process.make_folder(odd_folder))

  local shows = script("remote.lua", [[
    local key = os.getenv "ARGAND_KEY_FILE"
    local pipe = io.popen(("stat -c %%a '%s'"):format(key))
    say("host", os.getenv "FAKE_HOST" or "itself", "rank", rank, "local", os.getenv "ARGAND_LOCAL_RANK", "of", os.getenv "ARGAND_LOCAL_WORLD_SIZE",
      "node", os.getenv "ARGAND_NODE_RANK", "of", os.getenv "ARGAND_NODES", "at", os.getenv "ARGAND_COORDINATOR", "mode", pipe:read "*l",
      "folder", process.self().folder, "carried", tostring(os.getenv "CARRIED"), "args", table.concat(arg, "|"))
    say("key " .. key)
    for line in io.lines(key) do io.stderr:write(line, "\n") end
  ]])

  it("run their ranks", function()
    local code, out, err = run({"--hosts", "a:2,b:2", "-n", "3", "--ssh", ssh, "--key", keyfile, "--port", "25001", "--env", "CARRIED", shows, "it's", "a b", "$x", ""},
      {CARRIED = "a 'quoted' word"}, odd_folder)
    assert.equal(0, code, err)
    for rank, where in pairs {[0] = "host a rank 0 local 0 of 2 node 0 of 2", "host a rank 1 local 1 of 2 node 0 of 2", "host b rank 2 local 0 of 1 node 1 of 2"} do
      assert_contains(out, ("[%d] %s at tcp://a:25001 mode 600 folder %s carried a 'quoted' word args it's|a b|$x|\n"):format(rank, where, odd_folder))
      assert_contains(err, ("[%d] public 1\n[%d] secret 2\n"):format(rank, rank))
    end
    assert_contains(err, "[a] Welcome to a\n")
    local num_keys = 0
    for path in out:gmatch "key (/[^\n]*)\n" do
      num_keys = num_keys + 1
      assert.not_equal(keyfile, path)
      assert.is_nil(io.open(path))
      assert.is_false(os.rename(path:match "^(.*)/key$", path:match "^(.*)/key$") or false)
    end
    assert.equal(3, num_keys)
  end)

  it("run beside this one", function()
    local code, out, err = run {"--hosts", "localhost,b", "--ssh", ssh, "--key", keyfile, "--port", "25001", shows}
    assert.equal(0, code, err)
    local own = process.self().host
    assert_contains(out, ("at tcp://%s:25001 mode"):format(own))
    assert_contains(out, "[1] host b rank 1 local 0 of 1 node 1 of 2")
    assert_contains(out, "[0] key " .. keyfile .. "\n")
  end)

  it("tell which rank failed, and where", function()
    local fails = script("fails.lua", "process.status 'step 9' if rank == 2 then process.kill(ffi.C.getpid(), 9) end core.sleep(30)")
    local code, _, err = run {"--hosts", "a:2,b:2", "--ssh", ssh, "--key", keyfile, fails}
    assert.equal(137, code)
    assert(err:find "argand run: rank 2 %(host b, pid %d+%) was killed by signal 9 %(SIGKILL%) at: step 9\n", err)
  end)

  it("have no process left when the launcher is killed or told to end", function()
    local made = core.dist.is_available() and "--secure" or "--no-prefix" -- a key made for the job, where it can be made
    for _, number in ipairs {SIGKILL, SIGTERM} do
      local child = start {"--hosts", "a:2,b:1", "--ssh", ssh, made, made == "--secure" and "--grace=5" or "--key=" .. keyfile, waits}
      child:read(function() return select(2, child.out:gsub("pid %d+\n", "")) == 3 end)
      process.kill(child.pid, number)
      assert.equal(number == SIGKILL and -SIGKILL or 143, child:finish())
      assert_ended(child.out, 3)
    end
  end)

  it("that cannot be reached are named, and left out when that was allowed", function()
    local code, _, err = run {"--hosts", "a:2,gone:2", "--ssh", ssh, "--key", keyfile, waits}
    assert.equal(1, code)
    assert_contains(err, "[gone] ssh: no route to gone\n")
    assert_contains(err, "argand run: rank 2 (host gone) is lost with its host: it could not be reached: " .. ssh .. " ended with code 255\n")
    local says = script("says.lua", "say('of', os.getenv 'ARGAND_WORLD_SIZE', 'epoch', os.getenv 'ARGAND_EPOCH') if tonumber(os.getenv 'ARGAND_WORLD_SIZE') == 4 then core.sleep(30) end")
    local out
    code, out, err = run {"--hosts", "a:2,gone:2", "--ssh", ssh, "--key", keyfile, "--max-restarts", "1", "--min-n", "2", says}
    assert.equal(0, code, err)
    assert_contains(err, "argand run: restart 1 of 1 with 2 ranks\n")
    assert_contains(out, "[1] of 2 epoch 1\n")
    code, _, err = run {"--hosts", "a:2,gone:2", "--ssh", ssh, "--key", keyfile, "--max-restarts", "1", "--min-n", "3", says}
    assert.equal(1, code)
    assert_contains(err, "argand run: fewer than 3 slots are left\n")
  end)

  it("that vanish are named", function()
    local killer = script("killer.lua", [[
      say("pid " .. ffi.C.getpid())
      if rank == 1 then
        while not io.open "vanish" do core.sleep(0.01) end
        local file = io.open "/proc/self/stat"
        process.kill(tonumber(file:read("*a"):match "%) %u (%d+)"), 9)
      end
      core.sleep(60)
    ]])
    local child = start {"--hosts", "a,b", "--ssh", ssh, "--key", keyfile, killer}
    child:read(function() return select(2, child.out:gsub("pid %d+\n", "")) == 2 end)
    launcher:write_file("vanish", "")
    assert.equal(1, child:finish())
    assert_contains(child.err, "argand run: rank 1 (host b, pid ")
    assert_contains(child.err, "is lost with its host: the connection to it ended with code 137\n")
    assert_ended(child.out, 2)
  end)

  it("get a key that is made for the job", function()
    if not core.dist.is_available() then return pending "built without ZeroMQ" end
    local code, out, err = run {"--hosts", "a,b", "--ssh", ssh, shows}
    assert.equal(0, code, err)
    local count = 0
    for path in out:gmatch "key (/[^\n]*)\n" do
      count = count + 1
      assert.is_nil(io.open(path))
    end
    assert.equal(2, count)
  end)
end)

describe("what launchers tell each other", function()
  local wire = require "argand.run.wire"

  it("comes out as it went in, however it is cut", function()
    local frames = {{"out", "3", ""}, {"err", "0", "a\nb 1 2\n\0"}, {"out", "12", ("x"):rep(200000)}, {"ended", "3", "code 0"}, {"bye", "-", ""}}
    local text = ""
    for _, frame in ipairs(frames) do text = text .. wire.frame(unpack(frame)) end
    for _, size in ipairs {1, 7, 4096, 65536, #text} do
      local got = {}
      local reader = wire.reader(function(...) got[#got + 1] = {...} end)
      for from = 1, #text, size do assert.is_true(reader(text:sub(from, from + size - 1))) end
      assert.same(frames, got)
    end
    local value = {argv = {"a b", "it's\n", ""}, [1] = -1.5, yes = true, no = false, deep = {{{}}}, big = 2 ^ 53}
    assert.same(value, wire.decode(wire.encode(value)))
  end)

  it("is refused when it is something else", function()
    local check = cases.begin()
    for _, text in ipairs {"", "s3:ab", "t1:s1:a", "t1:t0:T", "x", "TT", "n;", "s99999999999:", ("t1:s1:a"):rep(20) .. "T"} do
      check(("%q"):format(text), function()
        local value, err = wire.decode(text)
        assert.is_nil(value)
        assert.is_string(err)
      end)
    end
    for _, text in ipairs {"Last login: today\n", ("a"):rep(101), "out 1 x\n", "out 1 999999999999\n"} do
      check(text, function() assert.is_false(wire.reader(function() end)(text)) end)
    end
    check.done()
  end)
end)

describe("a script that has joined a job", function()
  local joins = script("joins.lua", [[
    local ag, dist = require "argand", require "argand.dist"
    dist.init()
    for i = 1, 5 do
      dist.note("step " .. i)
      local sum = dist.all_reduce(ag.ones(10))
      if i == 5 then say("sum", sum:get(1)) end
      if i == 3 and rank == 1 and arg[1] == "error" then error "boom" end
      if i == 3 and rank == 1 and arg[1] == "kill" then process.kill(ffi.C.getpid(), 9) end
      if i == 3 and rank == 1 and arg[1] == "leave" then os.exit(0) end
    end
    if rank == 0 and arg[1] == "late" then core.sleep(0.5) end
  ]])

  it("leaves it at the end, and its failure is told apart from those it causes", function()
    if not core.dist.is_available() then return pending "built without ZeroMQ" end
    local check = cases.begin()
    local list = {
      {"well", 0, ""}, {"late", 0, ""}, {"error", 1, "rank 1 %(host localhost, pid %d+%) exited with code 1 at: step 3\n"},
      {"kill", 137, "rank 1 %(host localhost, pid %d+%) was killed by signal 9 %(SIGKILL%) at: step 3\n"},
      {"leave", 1, "rank [02] .* exited with code 1 at: step 4\nargand run: rank 1 had ended with code 0 at: step 3\n"},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local code, out, err = run({"-n", "3", "--timeout", "30", joins, case[1]}, {ARGAND_RANK = false})
        assert.equal(case[2], code, err)
        if case[3] ~= "" then return assert(("\n" .. err):find("\nargand run: " .. case[3]), err) end
        assert.equal("", err)
        assert.equal(3, select(2, out:gsub("%[%d%] sum 3\n", "")))
      end)
    end
    check.done()
  end)

  it("may be the test of the net between its ranks", function()
    if not core.dist.is_available() then return pending "built without ZeroMQ" end
    local code, out, err = run {"-n", "2", "--net-test"}
    assert.equal(0, code, err)
    for _, pair in ipairs {"0 %- 1"} do
      local latency, bandwidth = out:match("%[0%] " .. pair .. " +([%d.]+) us +([%d.]+) GB/s\n")
      assert(tonumber(latency) > 0 and tonumber(bandwidth) > 0, out)
    end
  end)
end)

describe("at the end", function()
  it("no key is left, whoever was killed", function()
    local deadline = core.now() + LIMIT_S
    local text
    repeat
      local pipe = io.popen(("ls -A '%s/tmp'"):format(folder))
      text = pipe:read "*a"
      pipe:close()
      if text ~= "" then process.poll({}, nil, 0.05) end
    until text == "" or core.now() > deadline
    assert.equal("", text)
  end)

  it("nothing is left in the temporary folder", function()
    assert.is_true(launcher:remove())
  end)
end)
