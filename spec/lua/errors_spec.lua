--- errors: what an error object holds, which line it blames, and that it behaves like a string where one is needed.
local ag = require "argand"
local nn = require "argand.nn"
local cases = require "support.cases"

local here = debug.getinfo(1, "S").short_src

local function line() return debug.getinfo(2, "l").currentline end

local function error_of(fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "no error was raised")
  return err
end

describe("an error object", function()
  it("has its parts as fields", function()
    local err = error_of(function() local y = ag.ones(2, 3):softmax(3) return y end)
    assert.equal("index", err.code)
    assert.equal("softmax", err.op)
    assert.equal("dim", err.arg)
    assert.equal("1 to 2, or -2 to -1", err.expected)
    assert.equal("3 for a tensor of 2 dims", err.got)
    assert.is_nil(err.hint)
    assert.equal("softmax: dim: expected 1 to 2, or -2 to -1, got 3 for a tensor of 2 dims", err.message)
    assert.is_truthy(err.traceback:find("stack traceback", 1, true))
  end)

  it("has them for checks of the binding and of the Lua library too", function()
    local err = error_of(function() local y = ag.ones(2):get(3) return y end)
    assert.same({"index", "get", "1 to 2, or -2 to -1", "3 in dim 1"}, {err.code, err.op, err.expected, err.got})
    err = error_of(function() local y = ag.ones(2):split(0) return y end)
    assert.same({"value", "split", "size", "a whole number >= 1 or a list of sizes", "0"}, {err.code, err.op, err.arg, err.expected, err.got})
    err = error_of(function() local y = ag.ones(2):softmax {dmi = 1} return y end)
    assert.same({"option", "softmax", "dmi", "unknown option"}, {err.code, err.op, err.arg, err.got})
    assert.is_truthy(err.hint:find('did you mean "dim"', 1, true))
    err = error_of(function() local y = ag.tensor {"a"} return y end)
    assert.same({"tensor", "data", "numbers", "string"}, {err.op, err.arg, err.expected, err.got})
  end)

  it("is one line as a string, and joins strings", function()
    local at = line() + 1
    local err = error_of(function() local y = ag.ones(2) + ag.ones(3) return y end)
    local text = ("%s:%d: add: expected shapes that broadcast: aligned at the last dim, sizes equal or 1, got [2] and [3]"):format(here, at)
    assert.equal(text, tostring(err))
    assert.equal("in loop: " .. text, "in loop: " .. err)
    assert.equal(text .. "!", err .. "!")
    assert.equal(text .. text, err .. err)
    assert.is_nil(tostring(err):find("\n", 1, true))
  end)

  it("blames the user's line", function()
    local check = cases.begin()
    local function blamed(name, at, fn, ...)
      local err = error_of(fn, ...)
      check(name, function() assert.equal(("%s:%d"):format(here, at), err.where) end)
    end
    local x = ag.ones(2, 3)
    blamed("op", line(), function() local y = x:softmax(9) return y end)
    blamed("operator", line(), function() local y = x + ag.ones(7) return y end)
    blamed("index", line(), function() local y = x[9] return y end)
    blamed("assignment", line(), function() x[9] = 1 end)
    blamed("field", line(), function() x.foo = 1 end)
    blamed("library in Lua", line(), function() local y = x:chunk(0) return y end)
    blamed("einsum", line(), function() local y = ag.einsum("ij,jk", x, x) return y end)
    blamed("allclose", line(), function() local y = x:allclose(x, {tol = 1}) return y end)
    local layer = nn.Linear(4, 2)
    blamed("nn.Linear", line(), function() local y = layer(x) return y end)
    local net = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2))
    blamed("a layer in nn.Sequential", line(), function() local y = net(x) return y end)
    blamed("nn.Linear made wrongly", line(), function() local y = nn.Linear(0, 2) return y end)
    blamed("backward", line(), function() x:backward() end)
    blamed("inside no_grad", line(), function() ag.no_grad(function() local y = x:softmax(9) return y end) end)
    blamed("inside scope", line(), function() ag.scope(function() local y = x:softmax(9) return y end) end)
    blamed("in a coroutine", line(), coroutine.wrap(function() local y = x:softmax(9) return y end))
    blamed("of a coroutine's caller when it has no line of Lua", line(), function() local y = x:softmax(9) return y end)
    local function helper(t) return t:softmax(9) end -- a tail call leaves no line of its own
    blamed("the caller of a tail call", line(), function() local y = helper(x) return y end)
    local function deep(n) if n == 0 then local y = x:softmax(9) return y end local y = deep(n - 1) return y end
    blamed("deep in a recursion", line() - 1, deep, 50)
    blamed("from pcall of pcall", line(), function() local _, err = pcall(function() local y = x:softmax(9) return y end) error(err, 0) end)
    check("method as a plain C call", function() assert.equal("index", error_of(x.softmax, x, 9).code) end)
    check("from a thread without Lua", function()
      local ok, err = coroutine.resume(coroutine.create(ag.softmax), x, 9)
      assert.is_false(ok)
      assert.equal("softmax: dim: expected 1 to 2, or -2 to -1, got 9 for a tensor of 2 dims", err.message)
    end)
    check.done()
  end)

  it("passes through xpcall, error and coroutines unchanged", function()
    local first
    local ok, err = xpcall(function() local y = ag.ones(2):softmax(9) return y end, function(e) first = e return e end)
    assert.is_false(ok)
    assert.is_true(rawequal(first, err))
    local wrapped = coroutine.wrap(function() coroutine.yield(1) error(err, 0) end)
    wrapped()
    assert.is_true(rawequal(err, error_of(wrapped)))
  end)

  it("of the user's own passes the engine unchanged", function()
    local x = ag.ones(2, {requires_grad = true})
    local mine = {}
    local y = x * 2
    y:register_hook(function() error(mine, 0) end)
    assert.is_true(rawequal(mine, error_of(function() y:sum():backward() end)))
    assert.is_true(rawequal(mine, error_of(ag.no_grad, function() error(mine, 0) end)))
    assert.is_true(ag.is_grad_enabled())
  end)

  it("goes to nil, err for files, and is raised for misuse", function()
    local t, err = ag.load_npy("/nonexistent/file.npy")
    assert.is_nil(t)
    assert.equal("file", err.code)
    assert.equal("argument", error_of(function() local y = ag.load_npy(5) return y end).code)
    assert.equal("dtype", error_of(function() local y = ag.save_npy("/nonexistent/x.npy", ag.ones(2, {dtype = "bf16"})) return y end).code)
    assert.equal("argument", error_of(function() local y = ag.save_npy("/nonexistent/x.npy", 7) return y end).code)
  end)
end)
