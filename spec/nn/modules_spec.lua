--- nn modules: forward against the plain formula, starting values, and errors that name the module and the shapes.
local ag = require "argand"
local cases = require "support.cases"
local nn = ag.nn

local function raised(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok, "no error was raised")
  assert.equal("table", type(err), tostring(err))
  assert.is_truthy(err.where and err.where:find("modules_spec.lua:", 1, true), tostring(err))
  return err
end

-- Nested plain tables of numbers; both must agree to `tolerance`.
local function near(expected, got, tolerance)
  if type(expected) == "number" then
    assert.is_true(math.abs(expected - got) <= tolerance * (1 + math.abs(expected)), expected .. " vs " .. got)
    return
  end
  assert.equal(#expected, #got)
  for i = 1, #expected do near(expected[i], got[i], tolerance) end
end

describe("Linear", function()
  -- y[n][o] = sum over i of x[n][i] * w[o][i], plus b[o]
  local function linear(x, w, b)
    local y = {}
    for n, row in ipairs(x) do
      y[n] = {}
      for o, weights in ipairs(w) do
        local sum = b and b[o] or 0
        for i, weight in ipairs(weights) do sum = sum + row[i] * weight end
        y[n][o] = sum
      end
    end
    return y
  end

  local function map(y, fn)
    local z = {}
    for n, row in ipairs(y) do
      z[n] = {}
      for o, v in ipairs(row) do z[n][o] = fn(v) end
    end
    return z
  end

  it("is x W^T + b, with and without bias and activation, in any number of dims", function()
    ag.manual_seed(1)
    local x = ag.randn(5, 4, { dtype = "f64" })
    for _, bias in ipairs { true, false } do
      local layer = nn.Linear(4, 3, { bias = bias, dtype = "f64" })
      local y = linear(x:tolist(), layer.weight:tolist(), bias and layer.bias:tolist())
      near(y, layer(x):tolist(), 1e-12)
      layer.activation = "relu"
      near(map(y, function(v) return math.max(v, 0) end), layer(x):tolist(), 1e-12)
      assert.same({ 5, 1, 2, 3 }, nn.Linear(4, 3, { bias = bias, dtype = "f64" })(x:reshape(5, 1, 1, 4)
        :expand(5, 1, 2, 4)):shape())
      assert.same({ 3 }, layer(x[1]):shape())
      assert.same({ 0, 3 }, layer(x:narrow(1, 1, 0)):shape())
    end
    local layer = nn.Linear(4, 3, { activation = "gelu", dtype = "f64" })
    local plain = linear(x:tolist(), layer.weight:tolist(), layer.bias:tolist())
    near(ag.tensor(plain, { dtype = "f64" }):gelu():tolist(), layer(x):tolist(), 1e-12)
  end)

  it("starts uniform within 1/sqrt(in_features), the same for the same generator", function()
    local layer = nn.Linear(100, 200, { generator = ag.generator(3) })
    for _, parameter in ipairs { layer.weight, layer.bias } do
      local largest = parameter:abs():amax():item()
      assert.is_true(largest <= 0.1 and largest > 0.09, largest)
      assert.is_true(math.abs(parameter:mean():item()) < 0.01)
    end
    local again = nn.Linear(100, 200, { generator = ag.generator(3) })
    assert.is_true(layer.weight:equal(again.weight) and layer.bias:equal(again.bias))
  end)

  it("names itself and the shapes when the input does not fit", function()
    local layer = nn.Linear(784, 10)
    local err = raised(function() return layer(ag.zeros(32, 28)) end)
    assert.equal("shape", err.code)
    assert.equal("Linear(784 -> 10): input: expected [..., 784], got [32, 28]; "
      .. "the last dim must be in_features of the layer", err.message)
    assert.equal("Linear(784 -> 10): input: expected a tensor, got number", raised(function() return layer(3) end).message)
    assert.equal("Linear(784 -> 10)", raised(function() return layer(ag.tensor(1)) end).op)
  end)
end)

describe("Dropout", function()
  it("zeroes about p of the elements and scales the others while training", function()
    local layer = nn.Dropout(0.25, { generator = ag.generator(5) })
    local y = layer(ag.ones(10000))
    local dropped = y:eq(0):sum():item()
    assert.is_true(math.abs(dropped - 2500) < 200, dropped)
    assert.is_true(math.abs(y:amax():item() - 1 / 0.75) < 1e-6)
    assert.equal(10000 - dropped, y:gt(1):sum():item())
  end)

  it("hands its input through after eval() and for p = 0", function()
    local x = ag.ones(4)
    assert.equal(x, nn.Dropout(0.5):eval()(x))
    assert.equal(x, nn.Dropout(0)(x))
  end)
end)

describe("LayerNorm", function()
  -- (x - mean) / sqrt(variance + eps) * w + b over a row
  local function normalise(row, w, b, eps)
    local mean, variance, y = 0, 0, {}
    for _, v in ipairs(row) do mean = mean + v / #row end
    for _, v in ipairs(row) do variance = variance + (v - mean) ^ 2 / #row end
    for i, v in ipairs(row) do y[i] = (v - mean) / math.sqrt(variance + eps) * (w and w[i] or 1) + (b and b[i] or 0) end
    return y
  end

  it("normalises the last dims", function()
    ag.manual_seed(2)
    local x = ag.randn(3, 6, { dtype = "f64" })
    local layer = nn.LayerNorm(6, { dtype = "f64", eps = 1e-3 })
    ag.no_grad(function()
      layer.weight:copy_(ag.randn(6))
      layer.bias:copy_(ag.randn(6))
    end)
    local bare = nn.LayerNorm(6, { dtype = "f64", affine = false })
    local expected, expected_bare = {}, {}
    for n, row in ipairs(x:tolist()) do
      expected[n] = normalise(row, layer.weight:tolist(), layer.bias:tolist(), 1e-3)
      expected_bare[n] = normalise(row, nil, nil, 1e-5)
    end
    near(expected, layer(x):tolist(), 1e-12)
    near(expected_bare, bare(x):tolist(), 1e-12)
    local two_dims = nn.LayerNorm({ 2, 3 }, { dtype = "f64", affine = false })
    near(expected_bare, two_dims(x:reshape(3, 2, 3)):reshape(3, 6):tolist(), 1e-12)
    assert.equal(1, #nn.LayerNorm(6, { bias = false }):parameters())
    assert.equal(0, #bare:parameters())
  end)

  it("names itself and the shapes", function()
    assert.equal("LayerNorm: input: expected [..., 2, 3], got [3, 2]",
      raised(function() return nn.LayerNorm { 2, 3 }(ag.zeros(3, 2)) end).message)
  end)
end)

describe("Embedding", function()
  it("looks rows up by ids from 1 on", function()
    local layer = nn.Embedding(5, 3)
    local ids = ag.tensor({ { 1, 5 }, { 2, 2 } }, { dtype = "i64" })
    local y, rows = layer(ids), layer.weight:tolist()
    assert.same({ 2, 2, 3 }, y:shape())
    assert.same({ { rows[1], rows[5] }, { rows[2], rows[2] } }, y:tolist())
  end)

  it("keeps the padding row at zero and without gradient", function()
    local layer = nn.Embedding(4, 2, { padding_idx = 2 })
    assert.same({ 0, 0 }, layer.weight[2]:tolist())
    layer(ag.tensor({ 1, 2, 2, 1, 4 }, { dtype = "i64" })):sum():backward()
    assert.same({ { 2, 2 }, { 0, 0 }, { 0, 0 }, { 1, 1 } }, layer.weight.grad:tolist())
  end)

  it("names the op that was called for a bad id, with and without gradients", function()
    local layer = nn.Embedding(4, 2)
    local ids = ag.tensor({ 1, 7 }, { dtype = "i64" })
    for _, run in ipairs { ag.enable_grad, ag.no_grad } do
      local err = raised(run, function() return layer(ids) end)
      assert.equal("index", err.code)
      assert.equal("embedding", err.op)
      assert.equal("index", err.arg)
      assert.is_truthy(err.message:find("^embedding: index: expected 1 to 4, .*got 7"), err.message)
    end
    assert.equal("Embedding: input: expected a tensor, got table", raised(function() return layer { 1 } end).message)
  end)
end)

describe("a composed op", function()
  it("is named in errors of the ops inside it, with the argument where both have it", function()
    local logits = ag.zeros(2, 3, { requires_grad = true })
    local target = ag.tensor({ 1, 4 }, { dtype = "i64" })
    local failures = {
      cross_entropy = { "target", function() return logits:cross_entropy(target) end },
      one_hot = { "index", function() return target:one_hot(3) end },
      take = { "index", function() return ag.zeros(3):take(target) end },
    }
    local check = cases.begin()
    for op, case in pairs(failures) do
      check(op, function()
        local err = raised(case[2])
        assert.equal(op, err.op)
        assert.equal(case[1], err.arg)
        assert.equal("index", err.code)
        assert.equal(1, err.message:find(op .. ": ", 1, true))
      end)
    end
    check.done()
  end)
end)

describe("activations", function()
  it("are the tensor methods of the same name", function()
    local x = ag.tensor { -2, -0.5, 0, 0.5, 2 }
    local check = cases.begin()
    for name, method in pairs { ReLU = "relu", GELU = "gelu", SiLU = "silu", Tanh = "tanh", Sigmoid = "sigmoid" } do
      check(name, function()
        assert.is_true(nn[name]()(x):equal(x[method](x)))
        assert.equal(name .. "()", tostring(nn[name]()))
        assert.equal(name .. ": input: expected a tensor, got nil", raised(function() return nn[name]()() end).message)
      end)
    end
    check.done()
  end)
end)

describe("Sequential", function()
  it("feeds each step with what the one before returns", function()
    local first, second = nn.Linear(3, 4, { dtype = "f64" }), nn.Linear(4, 2, { dtype = "f64" })
    local model = nn.Sequential(first, function(x) return x:tanh() end, second)
    local x = ag.ones(2, 3, { dtype = "f64" })
    assert.is_true(model(x):equal(second(first(x):tanh())))
    assert.is_true(nn.Sequential { first, second }(x):equal(second(first(x))))
    assert.equal(x, nn.Sequential()(x))
  end)

  it("has a length and positions, and grows", function()
    local relu = nn.ReLU()
    local model = nn.Sequential(nn.Linear(3, 4), relu)
    assert.equal(2, #model)
    assert.equal(relu, model[2])
    assert.equal(model, model:add(nn.Linear(4, 2)))
    assert.equal(3, #model)
    assert.same({ 5, 2 }, model(ag.zeros(5, 3)):shape())
    assert.equal(4, #model:parameters())
  end)

  it("refuses what is no step", function()
    assert.equal("Sequential: step 2: expected a module or a function, got table; "
      .. "a class needs a call to make a module, e.g. nn.ReLU()",
      raised(function() return nn.Sequential(nn.Linear(2, 2), nn.ReLU) end).message)
    assert.equal("Sequential: step: expected a module or a function, got nil",
      raised(function() return nn.Sequential():add() end).message)
  end)
end)

describe("constructors", function()
  it("refuse senseless arguments", function()
    local refused = {
      { "Linear: in_features: expected a whole number >= 1, got nil", function() return nn.Linear() end },
      { "Linear: in_features: expected a whole number >= 1, got 0", function() return nn.Linear(0, 1) end },
      { "Linear: out_features: expected a whole number >= 1, got 1.5", function() return nn.Linear(1, 1.5) end },
      { "Linear: out_features: expected a whole number >= 1, got inf", function() return nn.Linear(1, math.huge) end },
      { "Linear: unknown option 'bais'; did you mean 'bias'?", function() return nn.Linear(1, 1, { bais = false }) end },
      { "Linear: activation: expected none, relu or gelu, got 'tanh'",
        function() return nn.Linear(1, 1, { activation = "tanh" }) end },
      { "Linear: options: expected a table, got boolean", function() return nn.Linear(1, 1, false) end },
      { "Dropout: p: expected a number in [0, 1), got 1", function() return nn.Dropout(1) end },
      { "Dropout: p: expected a number in [0, 1), got -0.1", function() return nn.Dropout(-0.1) end },
      { "LayerNorm: shape: expected a whole number >= 1, got 0", function() return nn.LayerNorm(0) end },
      { "LayerNorm: shape: expected at least one size", function() return nn.LayerNorm {} end },
      { "Embedding: count: expected a whole number >= 1, got string", function() return nn.Embedding("a", 2) end },
      { "Embedding: padding_idx: expected 1 to 4, got 5", function() return nn.Embedding(4, 2, { padding_idx = 5 }) end },
    }
    local check = cases.begin()
    for _, case in ipairs(refused) do
      check(case[1], function() assert.equal(case[1], raised(case[2]).message) end)
    end
    check.done()
  end)
end)

describe("initializer", function()
  local init = nn.initializer
  local function bounds(tensor) return tensor:amin():item(), tensor:amax():item() end

  it("fills tensors in place with the distributions named", function()
    ag.manual_seed(4)
    local w = ag.zeros(200, 300, { requires_grad = true })
    local uniform = { -- {function, bound}
      { function() return init.uniform_(w, -2, 3) end, -2, 3 },
      { function() return init.kaiming_uniform_(w) end, -math.sqrt(6 / 300), math.sqrt(6 / 300) },
      { function() return init.kaiming_uniform_(w, { mode = "fan_out", a = 1 }) end, -math.sqrt(3 / 200), math.sqrt(3 / 200) },
      { function() return init.xavier_uniform_(w, { gain = 2 }) end, -2 * math.sqrt(6 / 500), 2 * math.sqrt(6 / 500) },
    }
    for _, case in ipairs(uniform) do
      assert.equal(w, case[1]())
      local low, high = bounds(w)
      local width = case[3] - case[2]
      assert.is_true(low >= case[2] - 1e-6 and low < case[2] + 0.01 * width, low)
      assert.is_true(high <= case[3] + 1e-6 and high > case[3] - 0.01 * width, high)
    end
    local normal = { -- {function, mean, std}
      { function() return init.normal_(w, 5, 0.5) end, 5, 0.5 },
      { function() return init.kaiming_normal_(w) end, 0, math.sqrt(2 / 300) },
      { function() return init.xavier_normal_(w) end, 0, math.sqrt(2 / 500) },
    }
    for _, case in ipairs(normal) do
      case[1]()
      local mean, std = w:mean():item(), w:std():item()
      assert.is_true(math.abs(mean - case[2]) < 0.02 * case[3], mean)
      assert.is_true(math.abs(std / case[3] - 1) < 0.02, std)
    end
    assert.equal(7, init.constant_(w, 7):amin():item())
    assert.equal(1, init.ones_(w):amin():item())
    assert.equal(0, init.zeros_(w):amax():item())
    assert.is_true(w.is_leaf and w.requires_grad)
  end)

  it("counts the field of a convolution", function()
    local w = init.kaiming_uniform_(ag.zeros(64, 4, 5, 5))
    local _, high = bounds(w)
    assert.is_true(high <= math.sqrt(6 / 100) and high > 0.95 * math.sqrt(6 / 100))
  end)

  it("refuses what is no tensor, and tensors without fans", function()
    for _, name in ipairs { "uniform_", "normal_", "constant_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_",
      "xavier_normal_" } do
      assert.equal(name .. ": tensor: expected a tensor, got number", raised(function() init[name](3) end).message)
    end
    assert.equal("xavier_normal_: tensor: expected at least 2 dims, got 1",
      raised(function() init.xavier_normal_(ag.zeros(3)) end).message)
    assert.equal("kaiming_normal_: mode: expected 'fan_in' or 'fan_out', got 'x'",
      raised(function() init.kaiming_normal_(ag.zeros(3, 3), { mode = "x" }) end).message)
  end)
end)
