--- security: jobs with a key over real processes: who has it gets in, who has another or none does not, and the job goes on.
local core = require "argand.core"
local cases = require "support.cases"
local dist = require "argand.dist"
local job = require "support.job"
local preload = require "support.preload"
local tcp_proxy = require "support.tcp_proxy"
local process = core.process

local worker = arg[0]:match "^(.*)/[^/]*$" .. "/dist_worker.lua"
local command = process.self().program

-- Runs a shell command; its exit code and what it wrote.
local function run_shell(line)
  local pipe = io.popen(line .. " 2>&1; echo code $?")
  local text, code = pipe:read("*a"):match "^(.*)code (%d+)\n$"
  pipe:close()
  return tonumber(code), text
end

local function run_keygen(path) return run_shell(("'%s' keygen '%s'"):format(command, path)) end

local keys_folder = assert(process.temporary_folder())

local function new_key(name)
  local path = keys_folder .. "/" .. name
  local code, text = run_keygen(path)
  assert(code == 0, text)
  return path
end

local has_keys = dist.is_available() and (function()
  local code, text = run_keygen(keys_folder .. "/probe")
  return code == 0, text
end)()

local good, other = has_keys and new_key "good", has_keys and new_key "other"

local function needs_keys()
  if not dist.is_available() then return "built without ZeroMQ" end
  if not has_keys then return "ZeroMQ was built without CURVE" end
end

local function read_file(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

-- Starts 3 ranks over tcp. keys: of each rank; more: arguments of all.
local function start(keys, more, opts)
  opts = opts or {}
  local args = {"phase=between", "seconds=1", "count=100", "expiry=3", "init_timeout=3", "timeout=20"}
  for _, word in ipairs(more or {}) do args[#args + 1] = word end
  opts.size, opts.script, opts.args, opts.transport = 3, worker, args, opts.transport or "tcp"
  opts.each = opts.each or function(index) return {env = {ARGAND_KEY_FILE = keys[index + 1]}} end
  return job.start(opts), opts
end

local function assert_formed(ranks)
  for _, rank in pairs(ranks) do
    local ready = rank:first "ready"
    assert(ready and ready.encrypted == tostring(ready.transport == "tcp"), rank:text()) -- memory is not
    assert(rank:first "finished", rank:text())
  end
end

-- The good ranks name the missing one; the bad one has an error, too.
local function assert_refused(ranks, victim)
  for index, rank in pairs(ranks) do
    local err = rank:first "error"
    assert(err, "no error: " .. rank:text())
    assert(not rank:first "ready", rank:text())
    if index ~= victim then
      assert(err.code == "timeout" and err.culprits == tostring(victim), rank:text())
      assert(err.at - rank.started < 5, rank:text())
    end
  end
end

local function run(keys, more, opts)
  local ranks, problems
  job.alone(function()
    ranks = start(keys, more, opts)
    problems = job.finish(ranks, 15)
  end)
  assert.equal("", table.concat(problems, "\n"))
  return ranks
end

describe("a job with a key", function()
  it("is formed by ranks that have it, over tcp and beside shared memory", function()
    if needs_keys() then return pending(needs_keys()) end
    local ranks = run {good, good, good}
    assert_formed(ranks)
    assert.equal("tcp", ranks[1]:first("ready").transport)
    ranks = run({good, good, good}, nil, {transport = "auto", coordinator = ("tcp://127.0.0.1:%d"):format(job.free_port())})
    assert_formed(ranks)
    assert.equal("shm", ranks[1]:first("ready").transport)
  end)

  it("is formed without a member that has another key, or none, which it names", function()
    if needs_keys() then return pending(needs_keys()) end
    local check, tasks = cases.begin(), {}
    local list = {
      {"another key", {good, other, good}, 1}, {"no key", {good, false, good}, 1},
      {"a coordinator with another key", {other, good, good}, 0}, {"a coordinator without one", {false, good, good}, 0},
    }
    for _, case in ipairs(list) do
      tasks[#tasks + 1] = {case = case, run = function(task)
        task.ranks = start(case[2])
        task.problems = job.finish(task.ranks, 15)
      end}
    end
    job.together(tasks, 4)
    for _, task in ipairs(tasks) do
      check(task.case[1], function()
        if task.error then error(task.error, 0) end
        assert.equal("", table.concat(task.problems, "\n"))
        local victim, ranks = task.case[3], task.ranks
        if victim ~= 0 then return assert_refused(ranks, victim) end
        -- Nobody gets to the true coordinator; each names rank 0, and rank 0 those that did not come.
        for index, rank in pairs(ranks) do
          local err = rank:first "error"
          assert(err and err.code == "timeout" and not rank:first "ready", rank:text())
          assert(err.culprits == (index == 0 and "1,2" or "0"), rank:text())
        end
      end)
    end
    check.done()
  end)

  it("takes nothing of strangers who know its name and its address", function()
    if needs_keys() then return pending(needs_keys()) end
    local check, tasks = cases.begin(), {}
    for name, key in pairs {["another key"] = other, ["an old job's key"] = new_key "old", ["no key"] = false} do
      tasks[#tasks + 1] = {name = name, run = function(task)
        local ranks, opts = start({good, good, good}, {"init_timeout=8"}, {only = {0, 2}})
        task.ranks = ranks
        job.wait(function() return ranks[0]:first "start" and ranks[2]:first "start" end, 10)
        -- It comes first, as rank 1.
        local stranger_opts = {size = 3, script = worker, args = opts.args, transport = "tcp", coordinator = opts.coordinator,
                               job = opts.job, env = {ARGAND_KEY_FILE = key}}
        local stranger = job.start_rank(stranger_opts, 1)
        job.wait(function() return stranger:first "start" end, 10)
        job.sleep(0.7)
        ranks[1] = job.start_rank(opts, 1)
        job.wait(function() return ranks[1]:first "ready" end, 10)
        job.sleep(0.3)
        stranger:kill(job.SIGKILL)
        task.stranger = stranger
        task.problems = job.finish(ranks, 15)
        job.finish({stranger}, 5)
      end}
    end
    job.together(tasks, 3)
    for _, task in ipairs(tasks) do
      check(task.name, function()
        if task.error then error(task.error, 0) end
        assert.equal("", table.concat(task.problems, "\n"))
        assert_formed(task.ranks)
        assert(not task.stranger:first "ready", task.stranger:text())
      end)
    end
    check.done()
  end)

  it("sends nothing that can be read", function()
    if needs_keys() then return pending(needs_keys()) end
    for _, key in ipairs {good, false} do
      local name = "spec-visible-" .. tostring(process.self().pid)
      local seen
      job.alone(function()
        local port = job.free_port()
        local proxy = tcp_proxy.new(port)
        local ranks = start(nil, nil, {
          job = name, coordinator = ("tcp://127.0.0.1:%d"):format(port),
          each = function(index)
            return {env = {ARGAND_KEY_FILE = key, ARGAND_COORDINATOR = index == 1 and ("tcp://127.0.0.1:%d"):format(proxy.port) or nil}}
          end,
        })
        job.finish(ranks, 15)
        assert(ranks[1]:first "finished", ranks[1]:text())
        seen = table.concat(proxy.recorded)
        proxy:close()
      end)
      assert(#seen > 500)
      -- The job's name is long enough that it does not come up in random bytes; a host's name ("vm") may.
      local is_visible = seen:find(name, 1, true) ~= nil
      assert.equal(key == false, is_visible)
    end
  end)
end)

describe("bytes of an old epoch", function()
  it("played into a job of the same name do nothing", function()
    if not dist.is_available() then return pending "built without ZeroMQ" end
    for _, key in ipairs {has_keys and good or nil, false} do
      local name, recorded = job.new_name(), nil
      job.alone(function()
        local port = job.free_port()
        local proxy = tcp_proxy.new(port)
        local ranks = start(nil, nil, {
          job = name, epoch = 0, coordinator = ("tcp://127.0.0.1:%d"):format(port),
          each = function(index)
            return {env = {ARGAND_KEY_FILE = key, ARGAND_COORDINATOR = index == 1 and ("tcp://127.0.0.1:%d"):format(proxy.port) or nil}}
          end,
        })
        job.finish(ranks, 15)
        assert(ranks[1]:first "finished", ranks[1]:text())
        recorded = proxy.recorded
        proxy:close()
      end)
      for _, epoch in ipairs {1, 0} do -- and into the same epoch, from another process
        job.alone(function()
          local port = job.free_port()
          local ranks = start({key, key, key}, nil, {job = name, epoch = epoch, coordinator = ("tcp://127.0.0.1:%d"):format(port)})
          job.wait(function() return ranks[0]:first "phase" end, 10)
          local fd = tcp_proxy.dial(port)
          for _, bytes in ipairs(recorded) do
            tcp_proxy.send(fd, bytes)
            job.sleep(0.02)
          end
          job.sleep(0.2)
          process.close(fd)
          local problems = job.finish(ranks, 15)
          assert.equal("", table.concat(problems, "\n"))
          for _, rank in pairs(ranks) do assert(rank:first "finished", rank:text()) end
        end)
      end
    end
  end)
end)

describe("a key file", function()
  it("is its owner's alone, and never written over", function()
    if needs_keys() then return pending(needs_keys()) end
    local pipe = io.popen(("stat -c '%%a' '%s'"):format(good))
    assert.equal("600", pipe:read "*l")
    pipe:close()
    local before = read_file(good)
    local code, text = run_keygen(good)
    assert.equal(1, code)
    assert(text:find "exists", text)
    assert.equal(before, read_file(good))
    assert.not_equal(before, read_file(other))
    code = run_keygen(keys_folder .. "/no/such/folder")
    assert.equal(1, code)
  end)

  it("that others may read, is damaged or is missing is refused, with the remedy", function()
    if needs_keys() then return pending(needs_keys()) end
    local text = read_file(good)
    local function write(name, bytes, mode)
      local path = keys_folder .. "/" .. name
      assert(process.write_private(path, bytes))
      if mode then os.execute(("chmod %s '%s'"):format(mode, path)) end
      return path
    end
    local list = {
      {write("group", text, "640"), "value", "chmod 600"}, {write("world", text, "604"), "value", "chmod 600"},
      {write("cut", text:sub(1, 60)), "format", "keygen"}, {write("empty", ""), "format", "keygen"},
      {write("swapped", (text:gsub("public", "public_"))), "format", "keygen"}, {keys_folder .. "/none", "file", "No such file"},
    }
    local check = cases.begin()
    for _, case in ipairs(list) do
      check(case[1], function()
        local ranks = run({case[1], case[1], case[1]}, nil, {only = {0}})
        local err = ranks[0]:first "error"
        assert(err and err.code == case[2], ranks[0]:text())
        assert(err.message:find(case[3], 1, true), err.message)
        assert(not err.message:find(text:match "secret (%S+)", 1, true), "the secret is in the message")
      end)
    end
    check.done()
  end)
end)

describe("a ZeroMQ library without CURVE", function()
  local REFUSAL = "this ZeroMQ library has no CURVE security; install a libzmq with libsodium"
  local script = keys_folder .. "/joins.lua"
  local words = {"env"} -- that run a command with such a library

  setup(function()
    for name, value in pairs(preload.variables("no_curve", keys_folder)) do words[#words + 1] = name .. "=" .. value end
    assert(process.write_private(script, "require('argand.dist').init() print 'joined'"))
  end)

  local function run_without(line)
    local prefix = {}
    for i, word in ipairs(words) do prefix[i] = "'" .. word .. "'" end
    return run_shell(("%s timeout -k 5 20 '%s' %s"):format(table.concat(prefix, " "), command, line))
  end

  it("forms jobs that ask for no key", function()
    if not dist.is_available() then return pending "built without ZeroMQ" end
    local code, text = run_without(("run -n 2 '%s'"):format(script))
    assert.equal(0, code, text)
    assert(text:find "%[0%] joined\n" and text:find "%[1%] joined\n", text)
    assert(text:find("opens ipc://", 1, true), text) -- it is seen
  end)

  it("is refused by each rank at once, before any address is opened", function()
    if not dist.is_available() then return pending "built without ZeroMQ" end
    local key = good or keys_folder .. "/none"
    local check = cases.begin()
    for _, transport in ipairs {"tcp", "ipc", "auto"} do
      for index = 0, 1 do -- the other two do not come; rank 0 would listen for them, rank 1 dial
        check(("%s, rank %d"):format(transport, index), function()
          local ranks = run({}, {"init_timeout=10"}, {only = {index}, transport = transport,
            each = function() return {wrapper = words, env = {ARGAND_KEY_FILE = key}} end})
          local rank = ranks[index]
          local err = rank:first "error"
          assert(err and err.code == "unsupported", rank:text())
          assert(err.message:find(REFUSAL, 1, true), err.message)
          assert(rank.ended - rank.started < 8, "it waited for others")
          assert(not rank:first "ready" and not rank:text():find("opens ", 1, true), rank:text())
        end)
      end
    end
    check.done()
  end)

  it("ends jobs of the launcher that have a key, and makes none", function()
    if not dist.is_available() then return pending "built without ZeroMQ" end
    local key = good or keys_folder .. "/none"
    if not good then assert(process.write_private(key, "public 1\nsecret 2\n")) end
    local made = keys_folder .. "/made"
    local check = cases.begin()
    for _, line in ipairs {("run -n 2 --key '%s' '%s'"):format(key, script), ("run -n 2 --secure '%s'"):format(script),
                           ("keygen '%s'"):format(made)} do
      check(line, function()
        local code, text = run_without(line)
        assert.equal(1, code, text)
        assert(text:find(REFUSAL, 1, true), text)
        assert(not text:find "joined" and not text:find("opens ", 1, true), text)
      end)
    end
    check("no file", function() assert.is_nil(io.open(made)) end)
    check.done()
  end)
end)

describe("an address that others reach", function()
  it("is refused without a key, with the remedy", function()
    if not dist.is_available() then return pending "built without ZeroMQ" end
    local list = {
      {coordinator = "tcp://0.0.0.0:" .. job.free_port()}, {coordinator = "tcp://*:" .. job.free_port()},
      {coordinator = ("tcp://127.0.0.1:%d"):format(job.free_port()), address = "0.0.0.0"},
    }
    local check = cases.begin()
    for _, case in ipairs(list) do
      check(case.coordinator, function()
        local more = case.address and {"address=" .. case.address} or nil
        local ranks = run({}, more, {only = {0}, coordinator = case.coordinator})
        local err = ranks[0]:first "error"
        assert(err and err.code == "value", ranks[0]:text())
        assert(err.message:find("argand keygen", 1, true), err.message)
      end)
    end
    check.done()
  end)
end)

describe("at the end", function()
  it("nothing is left behind", function()
    local left = job.leftovers()
    job.remove_folder()
    os.execute(("rm -rf '%s'"):format(keys_folder))
    assert.equal("", table.concat(left, "\n"))
  end)
end)
