; direct.tiled|dense.inner=1,dense.m=2,dense.m.block=2,dense.n=2,dense.n.block=2,dense.outer=1,dense.unroll=2
; a, w, bias, y
define void @kernel_r0(ptr %args, i64 %thread, i64 %first, i64 %past) #0 {
entry:
  %v1 = getelementptr ptr, ptr %args, i64 0
  %base2 = load ptr, ptr %v1, align 8
  %v3 = getelementptr ptr, ptr %args, i64 1
  %base4 = load ptr, ptr %v3, align 8
  %v5 = getelementptr ptr, ptr %args, i64 2
  %base6 = load ptr, ptr %v5, align 8
  %v7 = getelementptr ptr, ptr %args, i64 3
  %base8 = load ptr, ptr %v7, align 8
  %v10 = icmp slt i64 %first, %past
  br i1 %v10, label %L9, label %L9.exit
L9:
  %_p.L9 = phi i64 [ %first, %entry ], [ %v71, %L13.exit ]
  %v11 = urem i64 %_p.L9, 1
  %v12 = urem i64 %_p.L9, 1
  br label %L13
L13:
  %m.1.L13 = phi i64 [ 0, %L9 ], [ %v69, %L14.exit ]
  %h19 = mul nsw i64 %m.1.L13, 12
  %h20 = getelementptr float, ptr %base2, i64 %h19
  %h59 = mul nsw i64 %m.1.L13, 32
  %h60 = getelementptr float, ptr %base8, i64 %h59
  br label %L14
L14:
  %k.0.L14 = phi i64 [ 0, %L13 ], [ %v55, %L14 ]
  %a15 = phi <8 x float> [ splat (float 0x0000000000000000), %L13 ], [ %v45, %L14 ]
  %a16 = phi <8 x float> [ splat (float 0x0000000000000000), %L13 ], [ %v48, %L14 ]
  %a17 = phi <8 x float> [ splat (float 0x0000000000000000), %L13 ], [ %v53, %L14 ]
  %a18 = phi <8 x float> [ splat (float 0x0000000000000000), %L13 ], [ %v54, %L14 ]
  %h21 = mul nsw i64 %k.0.L14, 2
  %h22 = getelementptr float, ptr %h20, i64 %h21
  %h26 = mul nsw i64 %k.0.L14, 32
  %h27 = getelementptr float, ptr %base4, i64 %h26
  %v23 = load float, ptr %h22, align 4
  %v24 = insertelement <8 x float> poison, float %v23, i64 0
  %v25 = shufflevector <8 x float> %v24, <8 x float> poison, <8 x i32> zeroinitializer
  %v28 = load <8 x float>, ptr %h27, align 4
  %v29 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v25, <8 x float> %v28, <8 x float> %a15)
  %p30 = getelementptr float, ptr %h27, i64 8
  %v31 = load <8 x float>, ptr %p30, align 4
  %v32 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v25, <8 x float> %v31, <8 x float> %a16)
  %p33 = getelementptr float, ptr %h22, i64 6
  %v34 = load float, ptr %p33, align 4
  %v35 = insertelement <8 x float> poison, float %v34, i64 0
  %v36 = shufflevector <8 x float> %v35, <8 x float> poison, <8 x i32> zeroinitializer
  %v37 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v36, <8 x float> %v28, <8 x float> %a17)
  %v38 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v36, <8 x float> %v31, <8 x float> %a18)
  %p39 = getelementptr float, ptr %h22, i64 1
  %v40 = load float, ptr %p39, align 4
  %v41 = insertelement <8 x float> poison, float %v40, i64 0
  %v42 = shufflevector <8 x float> %v41, <8 x float> poison, <8 x i32> zeroinitializer
  %p43 = getelementptr float, ptr %h27, i64 16
  %v44 = load <8 x float>, ptr %p43, align 4
  %v45 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v42, <8 x float> %v44, <8 x float> %v29)
  %p46 = getelementptr float, ptr %h27, i64 24
  %v47 = load <8 x float>, ptr %p46, align 4
  %v48 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v42, <8 x float> %v47, <8 x float> %v32)
  %p49 = getelementptr float, ptr %h22, i64 7
  %v50 = load float, ptr %p49, align 4
  %v51 = insertelement <8 x float> poison, float %v50, i64 0
  %v52 = shufflevector <8 x float> %v51, <8 x float> poison, <8 x i32> zeroinitializer
  %v53 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v52, <8 x float> %v44, <8 x float> %v37)
  %v54 = call <8 x float> @llvm.fma.v8f32(<8 x float> %v52, <8 x float> %v47, <8 x float> %v38)
  %v55 = add nuw nsw i64 %k.0.L14, 1
  %v56 = icmp slt i64 %v55, 3
  br i1 %v56, label %L14, label %L14.exit
L14.exit:
  %v57 = load <8 x float>, ptr %base6, align 4
  %v58 = fadd <8 x float> %v45, %v57
  store <8 x float> %v58, ptr %h60, align 4
  %p61 = getelementptr float, ptr %base6, i64 8
  %v62 = load <8 x float>, ptr %p61, align 4
  %v63 = fadd <8 x float> %v48, %v62
  %p64 = getelementptr float, ptr %h60, i64 8
  store <8 x float> %v63, ptr %p64, align 4
  %v65 = fadd <8 x float> %v53, %v57
  %p66 = getelementptr float, ptr %h60, i64 16
  store <8 x float> %v65, ptr %p66, align 4
  %v67 = fadd <8 x float> %v54, %v62
  %p68 = getelementptr float, ptr %h60, i64 24
  store <8 x float> %v67, ptr %p68, align 4
  %v69 = add nuw nsw i64 %m.1.L13, 1
  %v70 = icmp slt i64 %v69, 2
  br i1 %v70, label %L13, label %L13.exit
L13.exit:
  %v71 = add nuw nsw i64 %_p.L9, 1
  %v72 = icmp slt i64 %v71, %past
  br i1 %v72, label %L9, label %L9.exit
L9.exit:
  ret void
}
