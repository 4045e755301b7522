--- process: the primitives of the launcher: what a child gets, what a failed start leaves, what is refused.
local core = require "argand.core"
local cases = require "support.cases"
local process = core.process

local LIMIT_S = 20

local function count_fds()
  local count = 0
  for fd = 0, 255 do
    local file = io.open(("/proc/self/fdinfo/%d"):format(fd))
    if file then
      count = count + 1
      file:close()
    end
  end
  return count
end

local function read_all(fd)
  local text, deadline = "", core.now() + LIMIT_S
  while core.now() < deadline do
    local bytes = process.read(fd)
    if bytes == false then
      process.close(fd)
      return text
    end
    text = text .. (bytes or "")
    if not bytes then process.poll({fd}, nil, 0.1) end
  end
  error "the child does not end"
end

-- Waits for this child; its exit code or minus the signal.
local function wait(pid)
  local deadline = core.now() + LIMIT_S
  while core.now() < deadline do
    local ended, code, signal = process.wait()
    if ended == pid then return code or -signal end
    process.poll({}, nil, 0.005)
  end
  error "the child does not end"
end

local function spawn_shell(text, more)
  local request = {argv = {"sh", "-c", text}, env = process.environment(), stdin = "null", stdout = "pipe"}
  for name, value in pairs(more or {}) do request[name] = value end
  return assert(process.spawn(request))
end

-- The numbers of a list such as "0-2,5".
local function numbers_of(text)
  local list = {}
  for first, last in text:gmatch "(%d+)%-?(%d*)" do
    for number = tonumber(first), tonumber(last) or tonumber(first) do list[#list + 1] = number end
  end
  return list
end

describe("this process", function()
  it("knows the processors that it may use", function()
    local file = assert(io.open "/proc/self/status")
    local expected = numbers_of(file:read("*a"):match "Cpus_allowed_list:%s*(%S+)")
    file:close()
    assert.same(expected, process.processors())
    local usable = process.self().processors -- fewer where a control group grants less time
    assert(usable >= 1 and usable <= #expected, usable)
  end)
end)

describe("a child", function()
  it("gets arguments, environment, folder and descriptors as told", function()
    local check = cases.begin()
    local list = {
      {"arguments", {argv = {"printf", "%s|", "a b", "", "it's", "\255"}}, "a b||it's|\255|"},
      {"environment", {argv = {"/usr/bin/env"}, env = {"A=1 2", "B="}}, "A=1 2\nB=\n"}, {"folder", {argv = {"pwd"}, cwd = "/"}, "/\n"},
      {"no input", {argv = {"cat"}}, ""}, {"a group of its own", {argv = {"sh", "-c", "test $(cut -d' ' -f5 /proc/$$/stat) = $$ && echo yes"}}, "yes\n"},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local request = {env = process.environment(), stdin = "null", stdout = "pipe"}
        for name, value in pairs(case[2]) do request[name] = value end
        local child = assert(process.spawn(request))
        assert.equal(case[3], read_all(child.stdout))
        assert.equal(0, wait(child.pid))
      end)
    end
    check("input", function()
      local child = spawn_shell("cat; exit 4", {stdin = "pipe"})
      assert.equal(6, process.write(child.stdin, "a\nb\0c\n"))
      process.close(child.stdin)
      assert.equal("a\nb\0c\n", read_all(child.stdout))
      assert.equal(4, wait(child.pid))
    end)
    check("a full pipe does not make the writer wait", function()
      local child = spawn_shell("sleep 60", {stdin = "pipe"})
      local written = process.write(child.stdin, ("x"):rep(2 ^ 22))
      assert.is_true(written > 0 and written < 2 ^ 22)
      process.close(child.stdin)
      assert.is_true(process.kill(-child.pid, 15))
      assert.equal(-15, wait(child.pid))
      process.close(child.stdout)
    end)
    local own = process.processors()
    local last = own[#own]
    local masks = {
      {"those of its parent", nil, table.concat(own, ",")}, {"one processor", {last}, tostring(last)},
      {"a number that a small set cannot hold", {last, 5000}, tostring(last)},
    }
    for _, case in ipairs(masks) do
      check(case[1], function()
        local child = spawn_shell("grep Cpus_allowed_list /proc/self/status", {processors = case[2]})
        assert.equal(case[3], table.concat(numbers_of(read_all(child.stdout)), ","))
        assert.equal(0, wait(child.pid))
      end)
    end
    check("signals are not blocked", function()
      local child = spawn_shell("grep SigBlk /proc/self/status")
      assert.equal("SigBlk:\t0000000000000000\n", read_all(child.stdout))
      assert.equal(0, wait(child.pid))
    end)
    check.done()
  end)

  it("that cannot be started is an answer, and leaves nothing open", function()
    local check = cases.begin()
    local before = count_fds()
    local list = {
      {"no such program", {argv = {"no-such-program"}}, "no-such-program: No such file or directory"}, {"no program", {argv = {"/etc/passwd"}}, "Permission denied"},
      {"a folder", {argv = {"/"}}, "Permission denied"}, {"no such folder", {argv = {"/bin/sh"}, cwd = "/no/such"}, "No such file"},
      {"no such processor", {argv = {"/bin/sh"}, processors = {200000}}, "Invalid argument"}, {"no such file", {argv = {"/bin/sh"}, stderr = "/no/such/file"}, "No such file"},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local request = {env = {}, stdin = "pipe", stdout = "pipe", status = "pipe"}
        for name, value in pairs(case[2]) do request[name] = value end
        local child, err = process.spawn(request)
        assert.is_nil(child)
        assert(err:find(case[3], 1, true), err)
        assert.equal(before, count_fds())
      end)
    end
    check("a child that ends leaves nothing either", function()
      local child = spawn_shell "exit 0"
      read_all(child.stdout)
      assert.equal(0, wait(child.pid))
      assert.equal(before, count_fds())
      assert.is_false(process.wait())
    end)
    check.done()
  end)

  it("has to be named properly", function()
    local check = cases.begin()
    local list = {
      {"no arguments", function() process.spawn {argv = {}, env = {}} end}, {"no environment", function() process.spawn {argv = {"true"}} end},
      {"a number", function() process.spawn {argv = {1}, env = {}} end}, {"all processes", function() process.kill(-1, 0) end},
      {"no processor", function() process.spawn {argv = {"true"}, env = {}, processors = {}} end},
      {"half a processor", function() process.spawn {argv = {"true"}, env = {}, processors = {0.5}} end},
      {"one below the first", function() process.spawn {argv = {"true"}, env = {}, processors = {-1}} end},
      {"one above all", function() process.spawn {argv = {"true"}, env = {}, processors = {2 ^ 32}} end},
      {"a text", function() process.spawn {argv = {"true"}, env = {}, processors = {"0"}} end}, {"its own group", function() process.kill(0, 0) end}, {"the first process", function() process.kill(1, 0) end},
    }
    for _, case in ipairs(list) do
      check(case[1], function() assert.is_false((pcall(case[2]))) end)
    end
    check.done()
  end)
end)

describe("private files", function()
  it("are new, and their owner's alone", function()
    local folder = assert(process.temporary_folder())
    local path = folder .. "/key"
    assert.is_true(process.write_private(path, "secret\0"))
    local refused, err = process.write_private(path, "other")
    assert.is_nil(refused)
    assert(err:find("File exists", 1, true), err)
    local pipe = io.popen(("stat -c %%a '%s' '%s'; cat '%s'"):format(folder, path, path))
    assert.equal("700\n600\nsecret\0", pipe:read "*a")
    pipe:close()
    os.remove(path)
    os.remove(folder)
  end)
end)

describe("a status", function()
  it("without a launcher goes nowhere", function()
    assert.is_false(process.status "step 1")
  end)

  it("is one line, and never waited for", function()
    local command = require("support.terminal").this_command()
    local code = "local p = require('argand.core').process p.status('a\\nb', 'note') p.status(('x'):rep(5000)) "
      .. "local n = 0 while p.status 'more' and n < 1e6 do n = n + 1 end print(n > 0 and n < 1e6)"
    local child = assert(process.spawn {argv = {command, "-e", code}, env = process.environment(), stdin = "null", stdout = "pipe", status = "pipe"})
    assert.equal("true\n", read_all(child.stdout))
    local text = process.read(child.status)
    assert.equal("note a b\nnote " .. ("x"):rep(480) .. "\nnote more\n", text:sub(1, 505))
    assert.equal(0, wait(child.pid))
    process.close(child.status)
  end)
end)
