--- collectives_spec: the functions of dist on a job of one rank and on simulated ones, against results computed in Lua.
local ag = require "argand"
local cases = require "support.cases"
local dist = require "argand.dist"

local function fails(code, pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error " .. code)
  assert(type(err) == "table" and err.code == code, ("expected code %s, got %s"):format(code, tostring(err)))
  assert(tostring(err):find(pattern), ("expected '%s' in: %s"):format(pattern, tostring(err)))
  return err
end

-- Element i of rank r's tensor; small whole numbers, so that sums and products are exact in every dtype.
local function element(rank, i) return (rank * 5 + i * 3) % 4 + 1 end

local function values(rank, count)
  local list = {}
  for i = 1, count do list[i] = element(rank, i) end
  return list
end

local reducers = {
  sum = function(a, b) return a + b end, min = math.min, max = math.max, prod = function(a, b) return a * b end,
  mean = function(a, b) return a + b end,
}

local function reduced(op, n, count)
  local list = {}
  for i = 1, count do
    local value = element(0, i)
    for rank = 1, n - 1 do value = reducers[op](value, element(rank, i)) end
    list[i] = op == "mean" and value / n or value
  end
  return list
end

local function slice(list, first, count) return {unpack(list, first, first + count - 1)} end

local function append(list, more)
  for _, value in ipairs(more) do list[#list + 1] = value end
  return list
end

-- Runs fn(rank, n) on 2 to 4 simulated ranks.
local function on_ranks(fn)
  for n = 2, 4 do
    dist.simulate {n = n, seed = n}(function(rank) return fn(rank, n) end):check()
  end
end

teardown(function() dist.close() end)

describe("a job of one rank", function()
  it("is joined without being asked for", function()
    if not dist.is_initialized() then dist.init() end
    assert.equal(0, dist.rank())
    assert.equal(1, dist.size())
    assert.equal(0, dist.local_rank())
    assert.equal("none", dist.info().transport)
    assert.is_true(dist.is_initialized())
    dist.init()
    fails("state", "joined a job already", dist.init, {timeout = 3})
    fails("option", "did you mean 'timeout'", dist.init, {timeot = 3})
  end)

  it("gives back what it got, fresh", function()
    local t = ag.tensor {{1, 2}, {3, 4}}
    for _, op in ipairs {"sum", "mean", "min", "max", "prod"} do
      local r = dist.all_reduce(t, {op = op})
      assert.same({{1, 2}, {3, 4}}, r:tolist())
      assert.is_false(r:shares_storage(t))
    end
    assert.same({{1, 2}, {3, 4}}, dist.reduce(t):tolist())
    assert.same({{1, 2}, {3, 4}}, dist.broadcast(t):tolist())
    assert.same({{1, 2}, {3, 4}}, dist.all_gather(t):tolist())
    assert.same({{1, 2}, {3, 4}}, dist.all_gather(t, {uneven = true}):tolist())
    assert.same({{1, 2}, {3, 4}}, dist.reduce_scatter(t):tolist())
    assert.same({{1, 2}, {3, 4}}, dist.gather(t):tolist())
    assert.same({{1, 2}, {3, 4}}, dist.scatter(t):tolist())
    assert.same({{1, 2}, {3, 4}}, dist.all_to_all(t):tolist())
    assert.same({{1, 2}, {3, 4}}, dist.all_to_all(t, {counts = {2}}):tolist())
    assert.is_nil(dist.barrier())
    assert.equal(t, dist.all_reduce_(t))
    assert.equal(t, dist.broadcast_(t))
  end)

  it("writes to out, and to the tensor itself, also a strided one", function()
    local t, out = ag.tensor {1, 2, 3}, ag.zeros(3)
    local version = out.version
    assert.equal(out, dist.all_reduce(t, {out = out}))
    assert.same({1, 2, 3}, out:tolist())
    assert.is_true(out.version > version)
    local strided = ag.tensor({{1, 2}, {3, 4}}):t()
    assert.equal(strided, dist.all_reduce_(strided))
    assert.same({{1, 3}, {2, 4}}, strided:tolist())
    fails("shape", "out", dist.all_reduce, t, {out = ag.zeros(4)})
    fails("argument", "out: expected a tensor, got number", dist.all_reduce, t, {out = 3})
  end)

  it("takes numbers and nested tables", function()
    assert.equal(2.5, dist.all_reduce(2.5))
    assert.same({7}, dist.all_gather(7))
    local r = dist.all_reduce({ag.tensor {1}, 5, inner = {x = ag.tensor {2}, y = 6}}, {op = "max"})
    assert.same({1}, r[1]:tolist())
    assert.equal(5, r[2])
    assert.same({2}, r.inner.x:tolist())
    assert.equal(6, r.inner.y)
    assert.same({}, dist.all_reduce {})
  end)

  it("gives handles", function()
    local h = dist.all_reduce({a = ag.tensor {1, 2}, b = 3}, {async = true})
    local r = h:wait()
    assert.is_true(h:is_done())
    assert.same({1, 2}, r.a:tolist())
    assert.equal(3, r.b)
    assert.equal(r, h:wait())
    assert.is_nil(dist.barrier {async = true}:wait(5))
    fails("argument", "timeout: expected seconds", h.wait, h, "soon")
  end)

  it("refuses what is no call", function()
    local t = ag.tensor {1, 2}
    local check = cases.begin()
    local wrong = {
      {"option", "did you mean 'op'", dist.all_reduce, t, {opp = "sum"}},
      {"option", "op: expected string, got number", dist.all_reduce, t, {op = 3}},
      {"option", "options: expected a table, got number", dist.broadcast, t, 0},
      {"option", "options: expected a table, got number", dist.barrier, 3},
      {"option", "options: expected a table, got", dist.all_reduce, t, t},
      {"option", "options: expected a table, got number", dist.send, t, 0, 5},
      {"state", "repeats elements", dist.all_reduce_, ag.tensor({1}):expand {4}},
      {"value", "op: expected sum, mean", dist.all_reduce, t, {op = "product"}},
      {"value", "algorithm", dist.all_reduce, t, {algorithm = "fast"}},
      {"argument", "expected a tensor, a number or a table of them, got string", dist.all_reduce, "t"},
      {"argument", "got boolean at b%[2%]", dist.all_reduce, {a = t, b = {t, true}}},
      {"argument", "expected a tensor at x, got a number", dist.all_reduce_, {x = 1}},
      {"argument", "expected a tensor, got a number", dist.all_to_all, 1},
      {"argument", "expected keys 1, 2", dist.all_reduce, {[2] = t, [4] = t, [1.5] = t}},
      {"argument", "group: expected a group, got table", dist.all_reduce, t, {group = {}}},
      {"value", "root: expected a rank, 0 to 0, got 1", dist.broadcast, t, {root = 1}},
      {"value", "to: expected a rank, 0 to 0, got nil", dist.send, t},
      {"value", "itself", dist.send, t, 0},
      {"argument", "expected what comes", dist.receive, 0, {}},
      {"value", "counts: expected rows for each of 1 ranks, got 2", dist.all_to_all, t, {counts = {1, 1}}},
      {"dtype", "and", dist.all_reduce, ag.tensor {true}},
      {"dtype", "bool", dist.all_reduce, t, {op = "and"}},
      {"dtype", "float", dist.all_reduce, ag.tensor({1}, {dtype = "i32"}), {op = "mean"}},
      {"device", "to%(\"cpu\"%)", dist.all_reduce, t:to "reference"},
      {"shape", "", dist.scatter, ag.tensor(1)},
      {"autodiff", "ag.no_grad", dist.all_reduce_, ag.tensor({1}, {requires_grad = true})},
      {"autodiff", "ag.no_grad", dist.all_reduce, ag.tensor({1}, {requires_grad = true}), {out = ag.zeros(1)}},
    }
    local loop = {}
    loop.loop = {loop}
    wrong[#wrong + 1] = {"value", "contains itself", dist.all_reduce, loop}
    for i, case in ipairs(wrong) do
      check(("%d %s"):format(i, case[2]), fails, unpack(case))
    end
    check.done()
  end)

  it("is left, and then refuses until it is joined again", function()
    dist.barrier()
    assert.is_true(dist.close())
    assert.is_false(dist.is_initialized())
    fails("state", "has left its job", dist.rank)
    fails("value", "rank", dist.init, {rank = 1, size = 1})
    dist.init {size = 1, timeout = 10}
    dist.init {size = 1, timeout = 10}
    assert.equal(0, dist.rank())
    dist.note "step 3"
  end)
end)

describe("collectives of simulated ranks", function()
  it("reduce, with every op, dtype and algorithm", function()
    local check = cases.begin()
    on_ranks(function(rank, n)
      for op in pairs(reducers) do
        for _, dtype in ipairs {"f64", "f32", "f16", "bf16", "i64", "i32", "u8"} do
          if op ~= "mean" or dtype:find "f" then
            for _, algorithm in ipairs {"direct", "halving", "ring"} do
              local t = ag.tensor(values(rank, 13), {dtype = dtype})
              local r = dist.all_reduce(t, {op = op, algorithm = algorithm})
              local expected = ag.tensor(reduced(op, n, 13), {dtype = dtype})
              check(("%s %s %s %d"):format(op, dtype, algorithm, n), function()
                assert.equal(dtype, r.dtype)
                assert.same(expected:tolist(), r:tolist())
                assert.same(values(rank, 13), t:tolist())
              end)
            end
          end
        end
      end
      local any = dist.all_reduce(ag.tensor {rank == 1, false, true}, {op = "or"})
      local all = dist.all_reduce(ag.tensor {rank == 1, false, true}, {op = "and"})
      check("or", assert.same, {true, false, true}, any:tolist())
      check("and", assert.same, {false, false, true}, all:tolist())
    end)
    check.done()
  end)

  it("reduce to a root, and scatter what is reduced", function()
    on_ranks(function(rank, n)
      for root = 0, n - 1 do
        local r = dist.reduce(ag.tensor(values(rank, 6)), {root = root, op = "max"})
        if rank == root then
          assert.same(reduced("max", n, 6), r:tolist())
        else
          assert.is_nil(r)
        end
      end
      local part = dist.reduce_scatter(ag.tensor(values(rank, 3 * n)))
      assert.same(slice(reduced("sum", n, 3 * n), 3 * rank + 1, 3), part:tolist())
      fails("shape", "", dist.reduce_scatter, ag.tensor(values(rank, 3 * n + 1)))
    end)
  end)

  it("move", function()
    on_ranks(function(rank, n)
      local own, all = values(rank, 4), {}
      for r = 0, n - 1 do append(all, values(r, 4)) end
      for root = 0, n - 1 do
        assert.same(values(root, 4), dist.broadcast(ag.tensor(own), {root = root}):tolist())
        local gathered = dist.gather(ag.tensor(own), {root = root})
        assert.same(rank == root and all or nil, gathered and gathered:tolist())
        local part = dist.scatter(rank == root and ag.tensor(all) or nil, {root = root, like = ag.tensor(own)})
        assert.same(own, part:tolist())
        part = dist.scatter(rank == root and ag.tensor(all) or nil, {root = root, shape = {4}})
        assert.same(own, part:tolist())
      end
      assert.same(all, dist.all_gather(ag.tensor(own)):tolist())
      assert.same({n * 2, 2}, dist.all_gather(ag.tensor(own):reshape(2, 2)):shape())
      local blocks = {}
      for r = 0, n - 1 do append(blocks, {rank * 10 + r, -rank}) end
      local got = {}
      for r = 0, n - 1 do append(got, {r * 10 + rank, -r}) end
      assert.same(got, dist.all_to_all(ag.tensor(blocks)):tolist())
    end)
  end)

  it("move rows whose number differs from rank to rank", function()
    on_ranks(function(rank, n)
      local all = {}
      for r = 0, n - 1 do
        for row = 1, r do all[#all + 1] = {r, row} end
      end
      local rows = {}
      for row = 1, rank do rows[row] = {rank, row} end
      local t = rank > 0 and ag.tensor(rows) or ag.zeros(0, 2)
      assert.same(all, dist.all_gather(t, {uneven = true}):tolist())
      -- r + 1 rows to each rank r
      local counts, sent, got = {}, {}, {}
      for r = 0, n - 1 do
        counts[r + 1] = r + 1
        for _ = 0, r do sent[#sent + 1] = rank * 10 + r end
        for _ = 0, rank do got[#got + 1] = r * 10 + rank end
      end
      assert.same(got, dist.all_to_all(ag.tensor(sent), {counts = counts}):tolist())
    end)
  end)

  it("take empty, 0-d, strided and wide tensors", function()
    on_ranks(function(rank, n)
      assert.same({0, 3}, dist.all_reduce(ag.zeros(0, 3)):shape())
      assert.equal(n * (n - 1) / 2, dist.all_reduce(ag.tensor(rank)):item())
      assert.same({n}, dist.all_gather(ag.tensor(rank)):shape())
      local strided = ag.arange(0, 6):reshape(2, 3):t() + rank
      local r = dist.all_reduce(strided:t():t(), {op = "max"})
      assert.is_true(r:equal(ag.arange(0, 6):reshape(2, 3):t():contiguous() + (n - 1)))
      local wide = dist.all_reduce(ag.ones(2, 1, 2, 1, 2, 1, 2) * rank)
      assert.same({2, 1, 2, 1, 2, 1, 2}, wide:shape())
      local t = ag.arange(0, 6):reshape(2, 3):t()
      assert.equal(t, dist.all_reduce_(t))
      assert.is_true(t:equal((ag.arange(0, 6):reshape(2, 3):t() * n)))
    end)
  end)

  it("take numbers and nested tables in one order", function()
    on_ranks(function(rank, n)
      assert.equal(n, dist.all_reduce(1))
      assert.equal(n - 1, dist.broadcast(rank, {root = n - 1}))
      local list = {}
      for r = 1, n do list[r] = (r - 1) / 4 end
      assert.same(list, dist.all_gather(rank / 4))
      local given = {b = ag.tensor {rank}, a = {rank, ag.tensor {1, 2}}}
      local r = dist.all_reduce(given)
      assert.same({n * (n - 1) / 2}, r.b:tolist())
      assert.equal(n * (n - 1) / 2, r.a[1])
      assert.same({n, 2 * n}, r.a[2]:tolist())
      assert.same({rank}, given.b:tolist())
      local rng = dist.rng {seed = 7}
      local same = ag.rand({3}, {generator = rng.same})
      assert.is_true(dist.all_reduce(same, {op = "max"}):equal(dist.all_reduce(same, {op = "min"})))
      local own = ag.rand({3}, {generator = rng.own})
      assert.is_false(dist.all_reduce(own, {op = "max"}):equal(dist.all_reduce(own, {op = "min"})))
      local seeds = dist.all_gather(dist.rng().same:state().seed)
      for i = 2, n do assert.equal(seeds[1], seeds[i]) end
      local on_one = dist.on(1, function(x) return x * 2 end, 21)
      assert.equal(rank == 1 and 42 or nil, on_one)
    end)
  end)

  it("send and receive", function()
    on_ranks(function(rank, n)
      if rank == 0 then
        for to = 1, n - 1 do dist.send({ag.tensor {to}, x = ag.tensor {to, to}}, to) end
      else
        local r = dist.receive(0, {like = {ag.zeros(1), x = ag.zeros(2)}})
        assert.same({rank}, r[1]:tolist())
        assert.same({rank, rank}, r.x:tolist())
      end
      -- around the ring: odd ranks receive first, since calls are made in their order
      local out, before = ag.zeros(1), (rank - 1) % n
      if rank % 2 == 1 then assert.equal(out, dist.receive(before, {out = out})) end
      dist.send(ag.tensor {rank}, (rank + 1) % n)
      if rank % 2 == 0 then out = dist.receive(before, {shape = {1}, async = true}):wait() end
      assert.same({before}, out:tolist())
    end)
  end)

  it("go on in the background, in order", function()
    on_ranks(function(rank, n)
      local handles = {}
      for i = 1, 5 do handles[i] = dist.all_reduce(ag.tensor {rank, i}, {async = true}) end
      local sum = dist.all_reduce(1)
      assert.equal(n, sum)
      for i = 5, 1, -1 do
        assert.is_true(handles[i]:is_done())
        assert.same({n * (n - 1) / 2, i * n}, handles[i]:wait():tolist())
      end
      local h = dist.broadcast_({ag.tensor {rank}}, {root = 1, async = true})
      while not h:is_done() do assert.is_table(h) end
      assert.same({1}, h:wait()[1]:tolist())
    end)
  end)
end)

describe("groups of simulated ranks", function()
  it("number their ranks from 0", function()
    dist.simulate {n = 4}(function(rank)
      local group = dist.group {3, 1}
      if rank % 2 == 0 then
        assert.is_false(group)
        fails("argument", "this rank is not in it", dist.barrier, {group = group})
      else
        assert.equal(2, group:size())
        assert.equal((rank - 1) / 2, group:rank())
        assert.equal(rank, group:world_rank(group:rank()))
        assert.same({1, 3}, group:all_gather(rank))
        assert.equal(4, dist.all_reduce(rank, {group = group}))
        assert.equal(3, group:broadcast(rank, {root = 1}))
        assert.equal(group:rank() == 0, group:split {0} and true)
      end
      assert.equal(6, dist.world():all_reduce(rank))
      if group then
        assert.is_true(group:close())
        fails("state", "closed", group.barrier, group)
      end
      fails("value", "ranks", dist.group, {0, 4})
      fails("value", "ranks", dist.group, {})
    end):check()
  end)
end)

describe("what is supported", function()
  it("is declared for editors", function()
    local text = require("argand.stubs").text()
    local part = assert(text:match("\n%-%-%-@class argand%.dist\n(.-)\n\n"))
    local methods = assert(text:match("\n%-%-%-@class argand%.dist%.Group\n(.-)\n\n"))
    local check = cases.begin()
    for name in pairs(dist) do
      check("dist." .. name, function() assert.truthy(("\n" .. part):find("\n---@field " .. name .. " ", 1, true)) end)
    end
    for name in part:gmatch("%-%-%-@field ([%w_]+)") do
      check(name .. " is there", function() assert.is_not_nil(dist[name]) end)
    end
    for name in methods:gmatch("%-%-%-@field ([%w_]+)") do
      check("Group:" .. name, function() assert.is_function(dist.Group[name]) end)
    end
    check.done()
  end)
end)
