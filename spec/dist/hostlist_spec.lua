--- hostlist: Slurm's lists of hosts, lists with slots, host files; and where in the text an error lies.
local hostlist = require "argand.dist.hostlist"
local cases = require "support.cases"

local function slots_text(list)
  local parts = {}
  for i, entry in ipairs(list) do parts[i] = entry.host .. "=" .. entry.slots end
  return table.concat(parts, " ")
end

describe("a list of hosts", function()
  it("is expanded as Slurm does", function()
    local check = cases.begin()
    local list = {
      {"login", "login"}, {"a,b", "a b"}, {"node[1-3]", "node1 node2 node3"}, {"node[1-3,7]", "node1 node2 node3 node7"},
      {"node[010-012]", "node010 node011 node012"}, {"node[1-3,7,010-012]x", "node1x node2x node3x node7x node010x node011x node012x"},
      {"n[08-11]", "n08 n09 n10 n11"}, {"n[5]", "n5"}, {"n[9-9]", "n9"}, {"n[098-101]", "n098 n099 n100 n101"},
      {"r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"}, {"r[1-2]n[01,3]-ib", "r1n01-ib r1n3-ib r2n01-ib r2n3-ib"},
      {"a[1,2],b,c[3-4].example.org", "a1 a2 b c3.example.org c4.example.org"}, {"a,a", "a a"}, {"[1-2]", "1 2"},
      {"a[1-2][3-4]", "a13 a14 a23 a24"}, {"10.0.0.[1-2]", "10.0.0.1 10.0.0.2"},
    }
    for _, case in ipairs(list) do
      check(case[1], function() assert.equal(case[2], table.concat(assert(hostlist.expand(case[1])), " ")) end)
    end
    check("a long one", function()
      local hosts = assert(hostlist.expand "n[00000-65535]")
      assert.same({65536, "n00000", "n65535"}, {#hosts, hosts[1], hosts[65536]})
    end)
    check.done()
  end)

  it("is refused with the position of what is wrong", function()
    local check = cases.begin()
    local list = {
      {"", "position 1: expected a host"}, {"a,,b", "position 3: expected a host"}, {"a,", "position 3: expected a host"},
      {"a[1-3", "position 2: '[' without ']'"}, {"a1-3]", "position 5: ']' without '['"}, {"a[]", "position 3: expected a number"},
      {"a[1,]", "position 5: expected a number"}, {"a[1-x]", "position 3: expected a number or a range of two, got '1-x'"},
      {"b,a[1,3-1]", "position 7: the range 3-1 ends before it starts"}, {"a[1-2-3]", "position 3"}, {"a b", "position 2: ' ' cannot be"},
      {"a;b", "position 2: ';' cannot be"}, {"a[[1]]", "position 3"}, {"a[0-65536]", "position 3: the range 0-65536 is too long"},
      {"a[1-60000]b[1-2]", "position 1: too many hosts"}, {"a[1-60000],b[1-60000]", "position 12: too many hosts"},
      {"a[1234567890123456]", "position 3: a number has too many digits"},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local hosts, err = hostlist.expand(case[1])
        assert.is_nil(hosts)
        assert.equal("value", err.code)
        assert.truthy(err.message:find(case[2], 1, true), err.message)
      end)
    end
    check.done()
  end)
end)

describe("hosts with slots", function()
  it("are read from a list", function()
    local check = cases.begin()
    local list = {
      {"a", "a=1"}, {"a:2,b:3", "a=2 b=3"}, {"a:2,b,a:1", "a=3 b=1"}, {"n[1-3]:4", "n1=4 n2=4 n3=4"}, {"[::1]:2", "::1=2"},
      {"fe80::1", "fe80::1=1"}, {"[fe80::1%eth0]:2,b", "fe80::1%eth0=2 b=1"}, {"10.0.0.1:8", "10.0.0.1=8"}, {"me@a:2", "me@a=2"},
      {"a:0", nil, "position 2: expected ':' and a number of slots"}, {"b,a:x", nil, "position 4"}, {"a:", nil, "position 2"}, {":2", nil, "position 1"},
      {"-oProxyCommand=x", nil, "position 15"}, {"-o", nil, "cannot start with '-'"}, {"a:1.5", nil, "position 2"}, {"a:99999999", nil, "position 2"},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local hosts, err = hostlist.parse(case[1])
        if case[2] then
          assert.equal(case[2], slots_text(assert(hosts)))
        else
          assert.is_nil(hosts)
          assert.truthy(err.message:find(case[3], 1, true), err.message)
        end
      end)
    end
    check.done()
  end)

  it("are read from a file", function()
    local check = cases.begin()
    local list = {
      {"a slots=4\nb slots=2\n", "a=4 b=2"}, {"a:4\nb\n", "a=4 b=1"}, {"# hosts\n\n  a slots=2 # the first\r\n\tb\r\n", "a=2 b=1"},
      {"a\na\na slots=2", "a=4"}, {"a slots=2 max_slots=8", "a=2"}, {"::1 slots=3", "::1=3"}, {"n[1-2] slots=3", "n1=3 n2=3"},
      {"a slots=0", nil, "f line 1: slots: expected a number"}, {"a\nb slot=2", nil, "f line 2: expected slots=N"}, {"a\n\nb:x", nil, "f line 3: position 2"},
      {"# nothing", nil, "f names no host"}, {"", nil, "f names no host"}, {"a:2 slots=2", nil, "f line 1: slots are given twice"},
    }
    for _, case in ipairs(list) do
      check(case[1], function()
        local hosts, err = hostlist.parse_file(case[1], "f")
        if case[2] then
          assert.equal(case[2], slots_text(assert(hosts)))
        else
          assert.is_nil(hosts)
          assert.truthy(err.message:find(case[3], 1, true), err.message)
        end
      end)
    end
    check.done()
  end)
end)
