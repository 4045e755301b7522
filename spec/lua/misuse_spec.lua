--- misuse: the text of every kind of wrong use and of every failure of the world; after each one state is intact and the process lives.
local ag = require "argand"
local core = require "argand.core"
local nn = require "argand.nn"
local cases = require "support.cases"
local live_memory = require "support.live_memory"

local here = debug.getinfo(1, "S").short_src

local function long(list) return ag.tensor(list, {dtype = "i64"}) end

local function with_file(content, fn)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(content)
  file:close()
  local _, err = fn(path)
  os.remove(path)
  if not err then return "nothing was refused" end
  return (tostring(err.message):gsub(path:gsub("%p", "%%%0"), "FILE")), err.code
end

-- An npy file of 118 bytes of header for a shape, without its elements.
local function npy(shape)
  local header = ("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }"):format(shape)
  return "\147NUMPY\1\0\118\0" .. header .. (" "):rep(117 - #header) .. "\n"
end

-- {name, code, message, what is done}. The function must not end in a tail call: its line is the one that is blamed.
local list = {
  {"shapes that do not broadcast", "shape", "add: expected shapes that broadcast: aligned at the last dim, sizes equal or 1, got [2, 3] and [2]",
    function() local y = ag.ones(2, 3) + ag.ones(2) return y end},
  {"matrix sizes", "shape", "matmul: expected the last dim of a equal to the second last of b, got [2, 3] and [4, 5]",
    function() local y = ag.ones(2, 3):matmul(ag.ones(4, 5)) return y end},
  {"reshape", "shape", "reshape: shape: expected as many elements as x has, at most one size -1, got [4, -1] for [2, 3] of 6 elements",
    function() local y = ag.ones(2, 3):reshape(4, -1) return y end},
  {"a layer's input", "shape", "Linear(4 -> 2): input: expected [..., 4], got [2, 3]; the last dim must be in_features of the layer", function() local y = nn.Linear(4, 2)(ag.ones(2, 3)) return y end},
  {"out's shape", "shape", "exp: out: expected [2], got [3]", function() local y = ag.ones(2):exp {out = ag.ones(3)} return y end},
  {"an unknown dtype", "argument", 'zeros: dtype: expected f64 f32 f16 bf16 i64 i32 i16 i8 u8 or bool, got "float"',
    function() local y = ag.zeros(2, {dtype = "float"}) return y end},
  {"a dtype that npy has not", "dtype", false, function() local y = ag.save_npy("/nonexistent/x.npy", ag.ones(2, {dtype = "bf16"})) return y end},
  {"kind: ints for floats", "kind", 'layer_norm: x: expected a float tensor, got i64; convert: t:to("f32")',
    function() local y = long {1, 2}:layer_norm {2} return y end},
  {"kind: floats for a mask", "kind", "masked_fill: mask: expected a bool tensor, got f32; compare to get one: t:ne(0)",
    function() local y = ag.ones(2):masked_fill(ag.ones(2), 0) return y end},
  {"kind: floats for positions", "kind", 'index_select: index: expected an int tensor of positions, got f32; convert: t:to("i64")',
    function() local y = ag.ones(2):index_select(1, ag.ones(2)) return y end},
  {"kind: bools added", "kind", 'add: expected float or int tensors, got bool; logical_and, logical_or and logical_xor join bools; or convert: t:to("f32")',
    function() local y = ag.tensor {true} + ag.tensor {true} return y end},
  {"kind in place", "kind", 'exp: x: expected a float tensor, as the result is, got i64; convert first, t:to("f32"), or use the pure form',
    function() local y = long {1}:exp_() return y end},
  {"an unknown device", "device", 'ones: device: expected cpu, reference, got "cuda"', function() local y = ag.ones(2, {device = "cuda"}) return y end},
  {"tensors of two devices", "device", 'add: expected tensors on one device, got cpu and reference; move one: t:to("cpu")',
    function() local y = ag.ones(2) + ag.ones(2):to "reference" return y end},
  {"an option", "option", 'softmax: dmi: unknown option; did you mean "dim"? The signature is softmax(x: num, dim: dim = -1)',
    function() local y = ag.ones(2):softmax {dmi = 1} return y end},
  {"an option of a layer", "option", "Linear: unknown option 'bais'; did you mean 'bias'?", function() local y = nn.Linear(2, 2, {bais = false}) return y end},
  {"a dim", "index", "sum: dims: expected 1 to 2, or -2 to -1, got 3 for a tensor of 2 dims", function() local y = ag.ones(2, 3):sum(3) return y end},
  {"a position", "index", "index: expected 1 to 3, or -3 to -1, got 4 in dim 2", function() local y = ag.ones(2, 3)[{1, 4}] return y end},
  {"a position in a tensor", "index", "embedding: index: expected 1 to 5, or -5 to -1, got 6 at element 2",
    function() local y = ag.ones(5, 2):embedding(long {1, 6}) return y end},
  {"a label", "index", "cross_entropy: target: expected 1 to 3, got 4 in row 2", function() local y = ag.ones(2, 3):cross_entropy(long {1, 4}) return y end},
  {"label 0", "index", "cross_entropy: target: expected 1 to 3, got 0 in row 1", function() local y = ag.ones(2, 3):cross_entropy(long {0, 1}) return y end},
  {"NaN for ints", "value", "tensor: data: expected numbers that i64 can hold, got nan at element 2",
    function() local y = ag.tensor({1, 0 / 0}, {dtype = "i64"}) return y end},
  {"NaN for a size", "argument", "zeros: shape: expected whole numbers, got nan", function() local y = ag.zeros(0 / 0) return y end},
  {"NaN for a dim", "argument", "softmax: dim: expected a whole number, got nan", function() local y = ag.ones(2):softmax(0 / 0) return y end},
  {"NaN for a probability", "value", "dropout: p: expected a probability, 0 to 1, got nan", function() local y = ag.ones(2):dropout(0 / 0) return y end},
  {"NaN for a seed", "value", "manual_seed: seed: expected a whole number from 0 to 9007199254740992, got nan", function() ag.manual_seed(0 / 0) end},
  {"many for item", "shape", "item: tensor: expected one element, got f32[2]; index it or reduce it first", function() local y = ag.ones(2):item() return y end},
  {"too many arguments", "argument", "relu: too many arguments; the signature is relu(x: num)", function() local y = ag.ones(2):relu(1) return y end},
  {"a missing argument", "argument", "matmul: b: missing; the signature is matmul(a: num, b: num)", function() local y = ag.ones(2):matmul() return y end},
  {"an argument of another type", "argument", "matmul: b: expected a tensor or a number, got table", function() local y = ag.ones(2):matmul {{1}} return y end},
  {"a freed tensor", "state", "add: b: the tensor was freed by free() or at the end of its scope",
    function() local t = ag.ones(2) t:free() local y = ag.ones(2) + t return y end},
  {"a tensor from a scope", "state", "sum: x: the tensor was freed by free() or at the end of its scope",
    function() local t ag.scope(function() t = ag.ones(2) end) local y = t:sum() return y end},
  {"a view that repeats", "state", "add: a: expected a tensor to write to with memory of its own for each element, got a view that repeats elements, f32[3, 2]; clone() gives one",
    function() ag.ones(2):expand(3, 2):add_(1) end},
  {"more than memory", "memory", false, function() local y = ag.zeros(2 ^ 45) return y end},
  {"more than 2^63 bytes", "shape", "zeros: shape: expected fewer than 2^63 bytes, got [4294967296, 4294967296]", function() local y = ag.zeros(2 ^ 32, 2 ^ 32) return y end},
  {"no gradient", "autodiff", "backward: root: expected a tensor that depends on one with requires_grad, got an untracked tensor; make leaves with {requires_grad=true} and compute outside ag.no_grad",
    function() ag.ones(1):backward() end},
  {"gradient of many", "shape", false, function() ag.ones(2, {requires_grad = true}):mul(2):backward() end},
  {"gradient of ints", "kind", 'requires_grad: tensor: expected a float tensor, got i64; only floats have gradients; convert: t:to("f32")',
    function() local y = long {1} y.requires_grad = true end},
  {"backward twice", "autodiff", false,
    function() local x = ag.ones(2, {requires_grad = true}) local y = (x * x):sum() y:backward() y:backward() end},
  {"a stale saved tensor", "stale", false,
    function() local x = ag.ones(2, {requires_grad = true}) local w = x * 1 local y = (w * w):sum() w:add_(1) y:backward() end},
  {"a leaf in place", "autodiff", "add: a: expected a tensor that may be changed in place, got a leaf that requires grad; wrap the update in ag.no_grad(function() ... end)",
    function() ag.ones(2, {requires_grad = true}):add_(1) end},
  {"out= of tracked tensors", "autodiff", false, function() local y = ag.ones(2, {requires_grad = true}):exp {out = ag.ones(2)} return y end},
  {"methods called on what is no tensor", "argument", "fill_: self: expected a tensor, got number",
    function() local y = ag.ones(1).fill_(1, 2) return y end},
  {"copy_ on what is no tensor", "argument", "copy_: self: expected a tensor, got nil", function() ag.ones(1).copy_(nil, ag.ones(1)) end},
  {"supports on what is no tensor", "argument", "supports: self: expected a tensor, got string",
    function() local y = ag.ones(1).supports("f32", "add") return y end},
  {"t on what is no tensor", "argument", "t: self: expected a tensor, got table", function() local y = ag.ones(1).t {} return y end},
  {"a parameter that is no tensor", "argument", "parameter: tensor: expected a tensor, got number",
    function() local y = nn.parameter(1) return y end},
  {"a bound that is no number", "argument", "uniform_: low: expected a number, got string",
    function() nn.initializer.uniform_(ag.ones(2), "0") end},
  {"a mean that is no number", "argument", "normal_: mean: expected a number, got table", function() nn.initializer.normal_(ag.ones(2), {}) end},
  {"NaN for a parameter", "argument", "Adam: parameter 1 is a number, not a tensor", function() local y = ag.optim.Adam {0 / 0} return y end},
  {"an optimizer that is none", "argument", "Optimizer: the base class makes no steps; use optim.SGD, optim.Adam or optim.AdamW",
    function() local y = ag.optim.Optimizer {ag.ones(1)} return y end},
  {"a list of samples with holes", "argument", false, function() local y = ag.data.TensorDataset {nil, ag.ones(2)} return y end},
  {"a userdata for a dataset", "argument", "Loader: dataset: expected an object with get(i) and a length, got a userdata; wrap tensors: data.TensorDataset{x, y}",
    function() local y = ag.data.Loader(newproxy(true)) return y end},
  {"options of a loop", "option", "progress: options: expected a table, got boolean", function() local y = ag.progress(3, true) return y end},
  {"help on a number", "argument", "help: name: expected the name of an op, got number", function() local y = ag.help.text(1) return y end},
  {"text of what is no tensor", "argument", "format: tensor: expected a tensor, got nil", function() local y = ag.format.tensor(nil) return y end},
  {"NaN for a limit", "value", "set_memory_limit: bytes: expected 0 or more, got nan", function() ag.set_memory_limit(0 / 0) end},
  {"a limit that is no number", "argument", "set_memory_limit: bytes: expected a number, got string", function() ag.set_memory_limit "1" end},
  {"a field", "argument", "tensor: dtype: a tensor's field of that name cannot be set; requires_grad and grad can", function() ag.ones(2).dtype = "f64" end},
  {"a method", "argument", 'tensor: softmx: a tensor has no such field or method; did you mean "softmax"?', function() local y = ag.ones(2):softmx() return y end},
}

local files = {
  {"no file", "file", function() local t, err = ag.load_npy "/nonexistent/FILE" return t, err end},
  {"IDX that is none", "format", "\1\2\3\4", "load_idx", "idx_load: path: expected an IDX magic number that starts with bytes 00 00, got 01 02 in FILE; is this an IDX file?"},
  {"cut IDX", "format", "\0\0\8\1\0\0\0\9abc", "load_idx"}, {"IDX with more", "format", "\0\0\8\1\0\0\0\1abc", "load_idx"},
  {"lying IDX", "format", "\0\0\14\4" .. ("\255"):rep(16) .. "abc", "load_idx"}, {"cut gzip", "format", "\31\139\8\0\0\0\0\0\0\3\1", "load_idx"},
  {"npy that is none", "format", ("x"):rep(200), "load_npy"}, {"cut npy", "format", npy "(3,)" .. "1234", "load_npy"}, {"npy with more", "format", npy "(3,)" .. ("1234"):rep(4), "load_npy"},
  {"lying npy", "format", npy "(999999999999,)" .. "1234", "load_npy"},
}

local now = live_memory.now

local function sane(memory)
  local x = ag.tensor({1, 2, 3}, {requires_grad = true})
  local y = (x * x):sum()
  y:backward()
  assert(y:item() == 14 and x.grad:get(3) == 6 and ag.is_grad_enabled())
  x, y = nil, nil -- luacheck: ignore
  local after = now()
  assert.equal(memory.live, after.live)
  assert.equal(memory.nodes, after.nodes)
end

describe("misuse", function()
  it("is an error object with one line that helps", function()
    local check = cases.begin()
    for _, case in ipairs(list) do
      check(case[1], function()
        local memory = now()
        local ok, err = coroutine.resume(coroutine.create(function() case[4]() end))
        assert(not ok, "no error was raised")
        assert(type(err) == "table" and err.code, "not an error object: " .. tostring(err))
        assert.equal(case[2], err.code)
        if case[3] then assert.equal(case[3], err.message) end
        assert.equal(here, err.where:match "^(.*):%d+$")
        assert.is_nil(tostring(err):find("\n", 1, true))
        err = nil -- luacheck: ignore
        sane(memory)
      end)
    end
    check.done()
  end)

  it("of files comes back as nil and the error", function()
    local check = cases.begin()
    for _, case in ipairs(files) do
      check(case[1], function()
        local memory = now()
        if type(case[3]) == "function" then
          local t, err = case[3]()
          assert.is_nil(t)
          assert.equal(case[2], err.code)
        else
          local message, code = with_file(case[3], ag[case[4]])
          assert.equal(case[2], code, message)
          if case[5] then assert.equal(case[5], message) end
        end
        sane(memory)
      end)
    end
    check.done()
  end)

  it("of memory under a limit names what was asked for and what there is", function()
    local before = now().live
    ag.set_memory_limit(before + 2 ^ 20)
    local ok, err = pcall(function() local y = ag.zeros(2 ^ 20) return y end)
    ag.set_memory_limit(0)
    assert.is_false(ok)
    assert.equal("memory", err.code)
    assert.is_truthy(err.message:find("zeros: out of memory: 4.0 MiB asked for", 1, true))
    assert.is_truthy(err.hint)
    core.memory_trim()
    assert.equal(2 ^ 20, ag.zeros(2 ^ 20):numel())
  end)
end)
