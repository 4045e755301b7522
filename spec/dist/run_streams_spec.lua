--- run_streams: `argand run` where its surroundings are difficult: full disks, pipes that nobody reads, nohup, scripts that are
-- no files, processors of which a control group grants less, threads of one core.
local core = require "argand.core"
local cases = require "support.cases"
local launcher = require("support.launcher").new()
local plan = require "argand.run.plan"
local preload = require "support.preload"
local process = core.process

local LIMIT_S = 25
local SIGHUP, SIGKILL, SIGTERM = 1, 9, 15

local function read_file(path)
  local file = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

local function assert_contains(text, part) assert(text:find(part, 1, true), ("%q is not in: %s"):format(part, text)) end

-- Words before a command, so that the shell does something to it.
local function shell(text) return {"sh", "-c", text, "sh"} end

local says = launcher:write_file("says.lua", [[
  io.write(arg[1] == "half" and "half a line" or "a line\n")
  io.stderr:write("err ", os.getenv "ARGAND_RANK" or "-", "\n")
  io.flush()
  if arg[1] == "waits" then require("argand.core").sleep(60) end
]])
local threads = launcher:write_file("threads.lua", "print(os.getenv 'ARGAND_WORLD_SIZE', os.getenv 'ARGAND_THREADS', os.getenv 'GIVEN')")

describe("standard output on a full disk", function()
  it("is an error, of a job", function()
    local check = cases.begin()
    for _, word in ipairs {"line", "half", "waits"} do
      check(word, function()
        local code, _, err = launcher:run({"-n", "2", says, word}, {wrapper = shell 'exec "$@" >/dev/full'})
        assert.equal(1, code, err)
        assert.equal(1, select(2, err:gsub("argand run: standard output: No space left on device; the ranks end\n", "")), err)
      end)
    end
    check.done()
  end)

  it("is an error, of a script", function()
    local argv = shell '"$@" >/dev/full; echo code $?'
    argv[5], argv[6] = process.self().program, says
    local child = launcher:spawn(argv)
    assert.equal(0, child:finish())
    assert.equal("code 1\n", child.out)
    assert_contains(child.err, "argand: standard output: ")
  end)
end)

describe("a log on a full disk", function()
  it("is told once, and the job goes on", function()
    assert(process.make_folder(launcher.folder .. "/logs"))
    assert.equal(0, os.execute(("ln -s /dev/full '%s/logs/rank0.out'"):format(launcher.folder)))
    local code, out, err = launcher:run {"-n", "2", "--log-dir", "logs", says}
    assert.equal(0, code, err)
    assert_contains(out, "[0] a line\n")
    assert.equal(1, select(2, err:gsub("argand run: no more log: logs/rank0.out: No space left on device\n", "")), err)
    assert.equal("a line\n", read_file(launcher.folder .. "/logs/rank1.out"))
  end)
end)

describe("a launcher whose output nobody reads", function()
  -- A rank that finds no room for its output in a while: then the launcher has none for its own.
  local writes = launcher:write_file("writes.lua", [[
    local ffi = require "ffi"
    ffi.cdef "struct pollfd {int fd; short events, revents;}; int poll(struct pollfd *fds, unsigned long count, int timeout_ms);"
    local output = ffi.new("struct pollfd", 1, 4)
    while os.getenv "RANK" == "0" and ffi.C.poll(output, 1, 200) == 1 do io.write(("x"):rep(1023), "\n") io.flush() end
    if os.getenv "RANK" == "0" then io.open("is_full", "w"):close() end
    require("argand.core").sleep(60)
  ]])

  it("hears signals", function()
    for _, redirection in ipairs {"", "2>&1"} do
      local child = launcher:start({"-n", "2", writes}, {wrapper = shell('exec "$@" ' .. redirection)})
      local deadline = core.now() + LIMIT_S
      local marker = launcher.folder .. "/is_full"
      while not read_file(marker) and core.now() < deadline do process.poll({}, nil, 0.005) end
      assert(os.remove(marker))
      process.kill(child.pid, SIGTERM)
      local pid, code
      repeat
        pid, code = process.wait()
        if not pid then process.poll({}, nil, 0.005) end
      until pid == child.pid or core.now() > deadline
      if pid ~= child.pid then process.kill(child.pid, SIGKILL) end
      child:read()
      assert.equal(128 + SIGTERM, code)
    end
  end)
end)

describe("a launcher under nohup", function()
  it("does not end by SIGHUP", function()
    local child = launcher:start({"-n", "2", says, "waits"}, {wrapper = shell 'trap "" HUP; exec "$@"'})
    child:expect "a line\n.*a line\n"
    process.kill(child.pid, SIGHUP)
    process.kill(child.pid, SIGTERM)
    assert.equal(128 + SIGTERM, child:finish())
    assert_contains(child.err, "argand run: SIGTERM; the ranks end\n")
    assert.is_nil(child.err:find("SIGHUP", 1, true))
  end)
end)

describe("arguments of the launcher", function()
  it("name a script that every rank can read", function()
    local check = cases.begin()
    for _, path in ipairs {"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"} do
      check(path, function()
        local args = path == "-" and {"-n", "2", "--", path} or {"-n", "2", path}
        local code, out, err = launcher:run(args, {wrapper = shell 'echo "print(1)" | "$@"'})
        assert.same({1, ""}, {code, out})
        assert_contains(err, ("argand: run: script: expected a file, got %s; every rank reads it"):format(path))
      end)
    end
    check.done()
  end)

  it("name variables that there can be", function()
    for _, text in ipairs {"A-B", "A B=1", "1A=1", "=1"} do
      local code, _, err = launcher:run {"--env", text, says}
      assert.equal(2, code)
      assert_contains(err, ("--env: expected NAME or NAME=VALUE, got '%s'"):format(text))
    end
  end)

  it("allow fewer ranks after a restart only where there are restarts", function()
    local code, _, err = launcher:run {"-n", "2", "--min-n", "1", says}
    assert.equal(2, code)
    assert_contains(err, "--min-n is for restarts; say also how many: --max-restarts K")
  end)

  it("give variables to the ranks of this host, and --dry-run shows them", function()
    local code, out = launcher:run {"-n", "2", "--env", "GIVEN=a b", threads}
    assert.equal(0, code)
    assert.equal(2, select(2, out:gsub("\ta b\n", "")), out)
    code, out = launcher:run {"-n", "2", "--env", "GIVEN=a b", "--dry-run", threads}
    assert.equal(0, code)
    assert.equal(2, select(2, out:gsub(" 'GIVEN=a b' ", "")), out)
  end)
end)

describe("processors", function()
  it("that a control group does not grant are not divided", function()
    local variables = preload.variables("cpu_quota", launcher.folder)
    for _, name in ipairs {"ARGAND_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} do variables[name] = false end
    for _, args in ipairs {{threads}, {"-n", "1", "--bind", threads}} do
      local code, out, err = launcher:run(args, {env = variables})
      assert.equal(0, code, err)
      assert.equal("1\t1\tnil\n", out)
    end
  end)

  it("that are threads of one core go to one rank, when there are cores enough", function()
    local check = cases.begin()
    -- numbers of a core's two threads: beside each other, or all first threads before all second ones
    local orders = {beside = {[0] = "a", "a", "b", "b", "c", "c", "d", "d"}, apart = {[0] = "a", "b", "c", "d", "a", "b", "c", "d"}}
    local list = {
      {"beside", 2, {{0, 1, 2, 3}, {4, 5, 6, 7}}}, {"beside", 3, {{0, 1, 2, 3}, {4, 5}, {6, 7}}}, {"beside", 4, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
      {"beside", 5, {{0, 1}, {2, 3}, {4, 5}, {6}, {7}}},
      {"apart", 1, {{0, 1, 2, 3, 4, 5, 6, 7}}}, {"apart", 2, {{0, 1, 4, 5}, {2, 3, 6, 7}}}, {"apart", 3, {{0, 1, 4, 5}, {2, 6}, {3, 7}}},
      {"apart", 4, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}}, {"apart", 8, {{0}, {4}, {1}, {5}, {2}, {6}, {3}, {7}}},
    }
    for _, case in ipairs(list) do
      local order, size, expected = unpack(case)
      check(("%d ranks, %s"):format(size, order), function()
        local ranks = {}
        for i = 1, size do ranks[i] = {} end
        assert.same(expected, plan.shares({bind = {before = 0, size = size}, ranks = ranks}, {0, 1, 2, 3, 4, 5, 6, 7}, orders[order]))
      end)
    end
    check("some may not be used", function()
      assert.same({{1}, {2, 6}}, plan.shares({bind = {before = 0, size = 2}, ranks = {{}, {}}}, {1, 2, 6}, orders.apart))
    end)
    check("this machine's", function()
      local own = process.processors()
      for processor, name in pairs(plan.core_of(own)) do assert(("," .. name):find "^,%d" and processor >= 0, name) end
    end)
    check.done()
  end)
end)

describe("at the end", function()
  it("nothing is left", function() assert.is_true(launcher:remove()) end)
end)
