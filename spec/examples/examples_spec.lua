--- examples: the scripts as users start them, and what a training run must hold: accuracy, memory, reproducibility.
local ffi = require "ffi"
local ag = require "argand"
local live_memory = require "support.live_memory"
local nn, optim, data = ag.nn, ag.optim, ag.data

ffi.cdef [[
  long readlink(const char *path, char *buffer, size_t len);
  int mkdir(const char *path, unsigned mode);
]]

local function own_executable()
  local buffer = ffi.new("char[4096]")
  local len = ffi.C.readlink("/proc/self/exe", buffer, 4096)
  return ffi.string(buffer, len)
end

local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

local root = debug.getinfo(1, "S").source:match "^@(.*)spec/examples/[^/]*$"
if root == "" then root = "./" end

-- Runs an example; returns its standard output, its standard error and its exit code.
local function run(script, ...)
  local parts, err_path = { quoted(own_executable()), quoted(root .. "examples/" .. script) }, os.tmpname()
  for _, argument in ipairs { ... } do parts[#parts + 1] = quoted(argument) end
  local pipe = io.popen(table.concat(parts, " ") .. " 2>" .. err_path .. "; echo exit $?")
  local out = pipe:read "*a"
  pipe:close()
  local file = assert(io.open(err_path))
  local err = file:read "*a"
  file:close()
  os.remove(err_path)
  local text, code = out:match "^(.*)exit (%d+)\n$"
  return text, err, tonumber(code)
end

describe("examples/digits", function()
  it("reaches 97 % on the digits held out", function()
    local out, err, code = run "digits/main.lua"
    assert.equal(0, code, err)
    local accuracy = tonumber(out:match "test accuracy (0%.9%d+)\n$")
    assert.is_true(accuracy ~= nil and accuracy >= 0.97, out:sub(-100))
    assert.is_truthy(out:find("1438 digits to train on, 359 to test", 1, true))
    assert.equal("", err)
  end)
end)

describe("examples/mnist", function()
  local folder, made = os.tmpname(), {}
  os.remove(folder)

  local function write(name, dims, value_at, tool)
    local header, count = { string.char(0, 0, 8, #dims) }, 1
    for _, size in ipairs(dims) do
      header[#header + 1] = string.char(0, 0, math.floor(size / 256), size % 256)
      count = count * size
    end
    local values = {}
    for i = 1, count do values[i] = string.char(value_at(i - 1)) end
    local path = folder .. "/" .. name
    local file = assert(io.open(path, "wb"))
    file:write(table.concat(header), table.concat(values))
    file:close()
    made[#made + 1] = path
    if tool then assert(os.execute(("%s -c %s > %s.tmp && mv %s.tmp %s"):format(tool, path, path, path, path)) == 0) end
  end

  -- Images of 6 x 6 in four classes: row `label` of the image is bright.
  local function write_part(part, count, tool)
    write(part .. "-images-idx3-ubyte", { count, 6, 6 }, function(i)
      local image, row = math.floor(i / 36), math.floor(i % 36 / 6)
      return row == image % 4 and 250 or i * 7 % 40
    end, tool)
    write(part .. "-labels-idx1-ubyte", { count }, function(i) return i % 4 end, tool)
  end

  setup(function() assert.equal(0, ffi.C.mkdir(folder, 0x1c0)) end)
  teardown(function()
    for _, path in ipairs(made) do os.remove(path) end
    os.remove(folder)
  end)

  for _, tool in ipairs { "plain", "gzip" } do
    it("trains, validates and tests on small files, " .. tool, function()
      write_part("train", 600, tool ~= "plain" and tool)
      write_part("t10k", 100, tool ~= "plain" and tool)
      local out, err, code = run("mnist/main.lua", "--data", folder, "--epochs", "3")
      assert.equal(0, code, err)
      assert.is_truthy(out:find("(1): Linear(in_features=36, out_features=256", 1, true))
      assert.is_truthy(out:find("600 images to train on, 100 for test", 1, true))
      assert.is_truthy(out:find "epoch 3  loss %d+%.%d+  %d+%.%d%d s\n")
      assert.equal("1.0000", out:match "test accuracy (%S+)\n$")
      assert.is_truthy(err:find "epoch 1 100%% 5/5", err)
      out, err, code = run("mnist/main.lua", "--validate", "--data", folder, "--epochs", "2")
      assert.equal(0, code, err)
      assert.is_truthy(out:find("540 images to train on, 60 for validation", 1, true))
      assert.is_truthy(out:find "epoch 2  .*validation accuracy %d%.%d+\n$")
      assert.is_nil(out:find "test accuracy")
    end)
  end

  it("says what to do when there is no data, and ends with 1", function()
    local out, err, code = run("mnist/main.lua", "--data", "/nonexistent")
    assert.equal(1, code)
    assert.equal("", out)
    assert.is_truthy(err:find("/nonexistent/train-images-idx3-ubyte", 1, true), err)
    assert.is_truthy(err:find("get.sh first, or name the folder: --data DIR\n", 1, true), err)
    assert.is_nil(err:find "traceback")
  end)

  it("refuses arguments it does not know, and ends with 2", function()
    for _, arguments in ipairs { { "--epoch", "3" }, { "--data" }, { "--epochs", "x" }, { "--epochs", "0" }, { "file" } } do
      local _, err, code = run("mnist/main.lua", unpack(arguments))
      assert.equal(2, code, err)
    end
  end)
end)

describe("training", function()
  -- Makes an MLP. Returns train_epochs(n), four steps each, which gives the last loss, and the model.
  local function trainer()
    ag.manual_seed(11)
    local x = ag.randn(64, 20)
    local y = x:narrow(2, 1, 4):argmax(-1)
    local loader = data.Loader(data.TensorDataset { x, y }, { batch_size = 16, shuffle = true, seed = 2 })
    local model = nn.Sequential(nn.Linear(20, 32, { activation = "relu" }), nn.Dropout(0.1), nn.Linear(32, 4))
    local optimizer = optim.AdamW(model:parameters(), { lr = 1e-2 })
    return function(epochs)
      local last
      for _ = 1, epochs do
        for inputs, labels in loader:batches() do
          local loss = model(inputs):cross_entropy(labels)
          optimizer:zero_grad()
          loss:backward()
          optimizer:step()
          last = loss:item()
        end
      end
      return last
    end, model
  end

  -- Parameters after a training of its own, as plain tables.
  local function train(epochs)
    local train_epochs, model = trainer()
    train_epochs(epochs)
    local values = {}
    for i, parameter in ipairs(model:parameters()) do values[i] = parameter:tolist() end
    return values
  end

  it("leaves live bytes and tape nodes constant over 500 steps", function()
    local train_epochs = trainer()
    local first = train_epochs(1)
    local before = live_memory.now()
    local last = train_epochs(125)
    local now = live_memory.now()
    -- A dead stack slot may still hold a tensor of the last step; eight bytes or a node a step would be more.
    assert.is_true(now.live - before.live < 500 * 8, now.live - before.live)
    assert.is_true(now.nodes - before.nodes < 50, now.nodes - before.nodes)
    assert.is_true(last < 0.2 * first, last)
  end)

  it("is the same run for the same seeds, on one thread and on two", function()
    local threads = ag.get_num_threads()
    local first = train(8)
    assert.same(first, train(8))
    ag.set_num_threads(1)
    local single = train(8)
    ag.set_num_threads(2)
    local double = train(8)
    ag.set_num_threads(threads)
    assert.same(single, double)
    assert.same(first, single)
  end)

  it("is the same on one thread and on two when layers are large enough to be divided", function()
    local threads = ag.get_num_threads()
    local function large()
      ag.manual_seed(5)
      local model = nn.Sequential(nn.Linear(784, 256, { activation = "relu" }), nn.Linear(256, 10))
      local optimizer = optim.AdamW(model:parameters(), { lr = 1e-3 })
      local x, y = ag.rand(256, 784), ag.randint(1, 11, { 256 })
      for _ = 1, 5 do
        optimizer:zero_grad()
        model(x):cross_entropy(y):backward()
        optimizer:step()
      end
      return model:parameters()
    end
    ag.set_num_threads(1)
    local single = large()
    ag.set_num_threads(2)
    local double = large()
    ag.set_num_threads(threads)
    for i = 1, #single do assert.is_true(single[i]:equal(double[i]), "parameter " .. i) end
  end)
end)
