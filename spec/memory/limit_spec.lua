-- limit_spec: scopes, free, the memory limit and the cache.
local ag = require "argand"

local MIB = 1048576

local function collect()
  collectgarbage()
  collectgarbage()
end

describe("ag.scope", function()
  it("frees temporaries and keeps what is returned, tables to any depth", function()
    collect()
    local live = ag.memory().live
    local lost
    local kept, list, word = ag.scope(function(a)
      lost = ag.ones(MIB)
      local deep = {}
      local at = deep
      for i = 1, 50 do
        at[i] = ag.ones(16) * i
        at.next = {}
        at.cycle = deep
        at = at.next
      end
      return ag.ones(MIB) + a, deep, "word"
    end, 2)
    assert.equal("word", word)
    assert.equal(3, kept:get(1))
    local at = list
    for i = 1, 50 do
      assert.equal(i, at[i]:get(16))
      at = at.next
    end
    assert.is_true(ag.memory().live - live < 5 * MIB) -- kept alone, without a collection
    local ok, err = pcall(lost.sum, lost)
    assert.is_false(ok)
    assert.equal("state", err.code)
    assert.truthy(tostring(err):find "freed")
  end)

  it("nests: what an inner scope returns belongs to the outer one", function()
    local inner_result, direct
    local result = ag.scope(function()
      inner_result = ag.scope(function() return {ag.ones(4)} end)
      direct = ag.scope(function() return ag.ones(4) end)
      assert.equal(4, inner_result[1]:sum():item() * direct:get(1))
      return ag.scope(function() return {direct * 2} end)
    end)
    assert.equal(8, result[1]:sum():item())
    assert.has_error(function() inner_result[1]:sum() end)
    assert.has_error(function() direct:sum() end)
  end)

  it("frees everything when fn fails, and passes the error on", function()
    local mine, seen = {}, nil
    local ok, err = pcall(ag.scope, function()
      seen = ag.ones(4)
      error(mine)
    end)
    assert.is_false(ok)
    assert.equal(mine, err)
    assert.has_error(function() seen:sum() end)
    local outside = ag.ones(4)
    assert.equal(4, outside:sum():item())
    assert.has_error(function() ag.scope(3) end)
  end)

  it("leaves alone what ag.keep was asked to keep, and the state of optimizers", function()
    local kept, lost
    ag.scope(function()
      lost = ag.ones(4)
      kept = ag.keep(lost)
    end)
    assert.equal(4, kept:sum():item())
    assert.has_error(function() lost:sum() end)
    for _, optimizer in ipairs {"Adam", "SGD"} do
      local w = ag.ones(4, {requires_grad = true})
      local steps = ag.optim[optimizer]({w}, {lr = 0.1, [optimizer == "SGD" and "momentum" or "eps"] = 0.5})
      for _ = 1, 3 do
        ag.scope(function()
          steps:zero_grad();
          (w * w):sum():backward()
          steps:step()
        end)
      end
      assert.is_true(w:get(1) < 1)
    end
  end)

  it("leaves what was there before, and what the tape holds", function()
    local w = ag.tensor({1, 2}, {requires_grad = true})
    local loss = ag.scope(function() return (w * 3):exp():sum() end)
    loss:backward()
    assert.near(3 * math.exp(3), w.grad:get(1), 1e-3)
  end)
end)

describe("free", function()
  it("gives the memory back now; later use is an error", function()
    collect()
    local live = ag.memory().live
    local x = ag.ones(MIB)
    local v = x:narrow(1, 1, 10)
    assert.is_true(ag.memory().live - live >= 4 * MIB)
    x:free()
    assert.is_true(ag.memory().live - live >= 4 * MIB) -- the view holds it
    assert.equal(10, v:sum():item())
    v:free()
    assert.equal(live, ag.memory().live)
    local ok, err = pcall(function() return x + 1 end)
    assert.is_false(ok)
    assert.equal("state", err.code)
    x:free()
    assert.truthy(tostring(x):find "freed")
  end)
end)

describe("the cache", function()
  it("keeps freed blocks and gives them back on memory_trim", function()
    collect()
    ag.memory_trim()
    assert.equal(0, ag.memory().cached)
    local x = ag.ones(4 * MIB)
    x:free()
    local cached = ag.memory().cached
    assert.is_true(cached >= 16 * MIB)
    ag.ones(4 * MIB):free()
    assert.equal(cached, ag.memory().cached)
    ag.memory_trim()
    assert.equal(0, ag.memory().cached)
  end)
end)

describe("the memory limit", function()
  after_each(function() ag.set_memory_limit(0) end)

  it("is an error with a hint; smaller requests work afterwards", function()
    collect()
    ag.memory_trim()
    local base = ag.memory().live
    ag.set_memory_limit(base + 64 * MIB)
    local held = ag.ones(8 * MIB) -- 32 MiB
    local ok, err = pcall(ag.ones, 16 * MIB)
    assert.is_false(ok)
    assert.equal("memory", err.code)
    assert.truthy(err.hint:find "smaller batches")
    assert.truthy(err.message:find "64.0 MiB asked for")
    assert.truthy(err.message:find "in use %(peak .*cached, limit ")
    assert.equal(MIB, ag.ones(MIB):sum():item())
    ok, err = pcall(function() return held:reshape(2, -1):matmul(held:reshape(-1, 2)):expand(2, 2) + held:sum() end)
    assert.is_true(ok, tostring(err))
    assert.equal(base + 64 * MIB, ag.memory().limit)
    ag.set_memory_limit(0)
    assert.equal(16 * MIB, ag.ones(16 * MIB):numel())
  end)

  it("has garbage collected before it fails", function()
    collect()
    ag.set_memory_limit(ag.memory().live + 40 * MIB)
    collectgarbage "stop"
    for _ = 1, 30 do
      local x = ag.ones(2 * MIB) -- 8 MiB
      assert.equal(1, x:get(1))
    end
    collectgarbage "restart"
  end)

  it("may strike in backward, which leaves the graph and memory in order", function()
    collect()
    local x = ag.ones(2 * MIB, {requires_grad = true})
    local y = (x * 2):sin():exp():sum()
    collect()
    local live = ag.memory().live
    ag.set_memory_limit(live + 9 * MIB)
    local ok, err = pcall(function() y:backward {retain_graph = true} end)
    assert.is_false(ok)
    assert.equal("memory", err.code)
    collect()
    assert.equal(live, ag.memory().live)
    ag.set_memory_limit(0)
    y:backward()
    assert.near(2 * math.cos(2) * math.exp(math.sin(2)), x.grad:get(7), 1e-5)
  end)
end)
